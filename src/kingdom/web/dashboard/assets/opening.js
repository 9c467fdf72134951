// The header that is shown while the scripts load ends when the page is drawn.
new MutationObserver((_, observer) => {
  observer.disconnect();
  document.querySelector(".k-opening")?.remove();
}).observe(document.getElementById("app"), { childList: true });
