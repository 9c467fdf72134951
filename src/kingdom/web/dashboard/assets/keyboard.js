// Keys: "/" and Ctrl-K search, "?" lists the keys, j and k move in lists. Not while typing, nor above a dialog.
window.kingdomKeys = (() => {
  const words = JSON.parse(document.currentScript.dataset.words);
  const pages = JSON.parse(document.currentScript.dataset.pages);
  const OFF = "kingdom.keys.off";
  const WAIT = 150; // milliseconds after the last letter before the server is asked
  const HANGUL = { KeyJ: "j", KeyK: "k" }; // the letters of a Korean keyboard in the same places
  const FIELDS = "input, textarea, select, [contenteditable=true], [role=textbox], [role=combobox]";
  const ROWS = "#main tbody tr, #main .k-lines > li";

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // The focus goes back to the element that had it, or to the button that was clicked: a click leaves it nowhere.
  let clicked = null;

  function open(label, ...content) {
    document.querySelector("dialog.k-keys-dialog")?.close();
    const dialog = make("dialog", { class: "k-keys-dialog", "aria-label": label }, ...content);
    const opener = clicked;
    clicked = null;
    dialog.addEventListener("close", () => {
      dialog.remove();
      opener?.focus();
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
  }

  // ── search ──

  function search() {
    const field = make("input", { type: "search", "aria-label": words["search"], placeholder: words["search.hint"], autocomplete: "off", spellcheck: "false", maxlength: "200" });
    const list = make("ul", { class: "k-hits", "aria-label": words["search.results"] });
    const state = make("p", { class: "k-hits-state", role: "status" });
    const dialog = open(words["search"], field, state, list);
    let asked = 0;
    let timer = 0;

    function show(hits) {
      list.replaceChildren(
        ...hits.map(({ kind, title, text, path }) =>
          make("li", {}, make("a", { href: path, "data-kind": kind }, make("span", { class: "k-hit-kind" }, words[`kind.${kind}`]), make("span", { class: "k-hit-title" }, title), make("span", { class: "k-hit-text" }, text))),
        ),
      );
    }

    function pagesWith(query) {
      const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
      return pages
        .filter(([title]) => wanted.every((word) => title.toLowerCase().includes(word)))
        .map(([title, path]) => ({ kind: "page", title, text: "", path }));
    }

    async function ask(query) {
      const number = ++asked;
      try {
        const answer = await fetch(`/api/search?${new URLSearchParams({ q: query })}`, { headers: { Accept: "application/json" } });
        const body = await answer.json();
        if (number !== asked) return;
        if (!answer.ok) throw new Error(body.error?.message);
        const hits = [...pagesWith(query), ...body.data.items];
        show(hits);
        state.textContent = hits.length ? words["search.found"].replace("{n}", hits.length) : words["search.none"];
      } catch (error) {
        if (number === asked) state.textContent = error.message || words["search.failed"];
      }
    }

    field.addEventListener("input", () => {
      clearTimeout(timer);
      const query = field.value.trim();
      asked += 1; // an answer to what was typed before is not shown
      show(pagesWith(query));
      state.textContent = "";
      if (query) timer = setTimeout(() => ask(query), WAIT);
    });
    dialog.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      const links = [...list.querySelectorAll("a")];
      const at = links.indexOf(document.activeElement);
      if (event.key === "Enter" && document.activeElement === field && links.length) links[0].click();
      else if (event.key === "ArrowDown" && links.length) links[Math.min(at + 1, links.length - 1)].focus();
      else if (event.key === "ArrowUp" && at > 0) links[at - 1].focus();
      else if (event.key === "ArrowUp") field.focus();
      else return;
      event.preventDefault();
    });
    show(pagesWith(""));
    field.focus();
  }

  // ── the list of keys ──

  function help() {
    const keys = [
      ["/", words["keys.search"]],
      [/Mac|iP/.test(navigator.platform) ? "⌘ K" : "Ctrl K", words["keys.palette"]],
      ["j", words["keys.next"]],
      ["k", words["keys.previous"]],
      ["Enter", words["keys.open"]],
      ["?", words["keys.help"]],
      ["Esc", words["keys.close"]],
    ];
    const rows = keys.flatMap(([key, meaning]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, meaning)]);
    const box = make("input", { type: "checkbox" });
    box.checked = !isOff();
    box.addEventListener("change", () => (box.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
    const close = make("button", { type: "button", class: "k-keys-close" }, words["keys.done"]);
    const dialog = open(words["keys"], make("h2", {}, words["keys"]), make("dl", { class: "k-keys" }, ...rows), make("label", {}, box, words["keys.on"]), close);
    close.addEventListener("click", () => dialog.close());
    close.focus();
  }

  function isOff() {
    try {
      return localStorage.getItem(OFF) !== null;
    } catch {
      return false; // storage is switched off
    }
  }

  // ── lists ──

  function move(step) {
    const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.querySelector("a[href]") && row.getClientRects().length);
    if (!rows.length) return false;
    const at = rows.indexOf(document.activeElement?.closest?.("tbody tr, .k-lines > li"));
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
    rows[next].querySelector("a[href]").focus();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.altKey) return;
    if (event.target.closest?.(FIELDS) || document.querySelector("dialog[open], .q-dialog, .q-menu")) return;
    const key = /^[ㄱ-ㅣ]$/.test(event.key) ? HANGUL[event.code] : event.key;
    let done = true;
    if (event.ctrlKey || event.metaKey) {
      if (key?.toLowerCase() !== "k" || event.shiftKey) return;
      search();
    } else if (key === "?") help(); // also when the others are off: it turns them on
    else if (isOff()) return;
    else if (key === "/") search();
    else if (key === "j") done = move(1);
    else if (key === "k") done = move(-1);
    else return;
    if (done) event.preventDefault();
  });

  function searchFrom(button) {
    clicked = button;
    search();
  }

  return { searchFrom };
})();
