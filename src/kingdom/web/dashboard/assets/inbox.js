// The number of items in the title of the tab, and notifications of this browser for those who asked for them.
window.kingdomInbox = (() => {
  const WANTED = "kingdom.notify";
  const TOLD = "kingdom.notified";
  const words = JSON.parse(document.currentScript.dataset.words);

  const allowed = () => "Notification" in window && Notification.permission === "granted";
  const wanted = () => localStorage.getItem(WANTED) === "yes" && allowed();

  function told() {
    try {
      return JSON.parse(localStorage.getItem(TOLD)) ?? [];
    } catch {
      return [];
    }
  }

  function show(news) {
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = news.count ? `(${news.count}) ${title}` : title;
    const before = new Set(told());
    const fresh = news.items.filter((item) => !before.has(item.id));
    // kept also while nobody wants notifications: who asks for them hears of what comes, not of what lies there
    localStorage.setItem(TOLD, JSON.stringify(news.items.map((item) => item.id)));
    if (!wanted()) return;
    for (const item of fresh) {
      const notice = new Notification(item.title, { body: item.text, tag: item.id, icon: "/assets/mark.svg" });
      notice.addEventListener("click", () => {
        window.focus();
        window.location.assign("/inbox");
      });
    }
  }

  function label(button) {
    const text = wanted() ? words["notify.on"] : words["notify.off"];
    (button.querySelector(".block") ?? button).textContent = text;
    button.setAttribute("aria-pressed", String(wanted()));
  }

  /** Switch notifications on or off; called by a click, as browsers demand. */
  async function toggle(button) {
    if (wanted()) localStorage.removeItem(WANTED);
    else if ("Notification" in window && (await Notification.requestPermission()) === "granted")
      localStorage.setItem(WANTED, "yes");
    else Quasar.Notify.create({ message: words["notify.denied"], type: "warning" });
    label(button);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-notify]");
    if (button) toggle(button);
  });

  new MutationObserver(() => {
    const button = document.querySelector("[data-notify]:not([aria-pressed])");
    if (button) label(button);
  }).observe(document.documentElement, { childList: true, subtree: true });

  return { show };
})();
