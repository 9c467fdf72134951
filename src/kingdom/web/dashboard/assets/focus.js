// Arrow keys in menus, and a place for the focus when the element that had it is gone.
(() => {
  const ITEMS = "a[href], [role=menuitem]:not([disabled]), .q-item:not(.disabled)";
  const OPENING = 1000; // milliseconds
  let focused = null;

  document.addEventListener("focusin", (event) => (focused = event.target));

  new MutationObserver(() => {
    if (!focused || focused.isConnected || document.activeElement !== document.body) return;
    focused = null;
    document.getElementById("main")?.focus({ preventScroll: true });
  }).observe(document.documentElement, { childList: true, subtree: true });

  // A menu is drawn, and shown, a moment after the click.
  function enter(until) {
    const first = document.querySelector(".q-menu")?.querySelector(ITEMS);
    first?.focus();
    if ((!first || document.activeElement !== first) && performance.now() < until) requestAnimationFrame(() => enter(until));
  }

  document.addEventListener("keydown", (event) => {
    const menu = event.target.closest?.(".q-menu");
    if (!menu) {
      if (event.key === "ArrowDown" && event.target.matches?.("button[aria-haspopup]")) {
        event.preventDefault();
        if (!document.querySelector(".q-menu")) event.target.click();
        enter(performance.now() + OPENING);
      }
      return;
    }
    const items = [...menu.querySelectorAll(ITEMS)];
    const at = items.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at < 0 ? items.length - 1 : at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next === undefined || !items.length) return;
    event.preventDefault();
    items[(next + items.length) % items.length].focus();
  });
})();
