// Typed text is kept in this browser until it is sent, and put back when its field appears again.
//
// A field names its draft in data-draft. A form has data-draft-form: its fields share one note, and leaving the page asks
// while something in it is not saved. The server calls kingdomDrafts.forget(name) when the text has arrived; "name" and
// everything below it ("name/…") are forgotten.
window.kingdomDrafts = (() => {
  const PREFIX = "kingdom.draft.";
  const MAX_AGE = 30 * 24 * 3600 * 1000;
  const words = JSON.parse(document.currentScript.dataset.words);
  const unsaved = new Set();

  function read(name) {
    try {
      return JSON.parse(localStorage.getItem(PREFIX + name))?.value ?? null;
    } catch {
      return null;
    }
  }

  function keep(name, value) {
    try {
      if (value === "" || value === null) localStorage.removeItem(PREFIX + name);
      else localStorage.setItem(PREFIX + name, JSON.stringify({ value, at: Date.now() }));
    } catch {
      // storage is full or switched off: nothing is kept
    }
  }

  function names() {
    return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
  }

  function forget(name) {
    unsaved.delete(name);
    for (const one of names()) if (one === name || one.startsWith(name + "/")) localStorage.removeItem(PREFIX + one);
    for (const note of document.querySelectorAll(".k-draft-note")) if (note.dataset.of === name) note.remove();
  }

  function type(field, value) {
    const prototype = field instanceof HTMLTextAreaElement ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(prototype.prototype, "value").set.call(field, value);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function discard(name, field) {
    forget(name);
    if (field.isConnected && !field.closest("[data-draft-form]")) type(field, "");
    else window.location.reload();
  }

  function note(place, name, field) {
    if ([...document.querySelectorAll(".k-draft-note")].some((one) => one.dataset.of === name)) return;
    const line = document.createElement("div");
    line.className = "k-draft-note";
    line.dataset.of = name;
    line.setAttribute("role", "status");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words.discard;
    button.addEventListener("click", () => discard(name, field));
    line.append(words.restored, " ", button);
    place(line);
  }

  function restore(field) {
    const kept = read(field.dataset.draft);
    if (kept === null || kept === field.value || field.disabled) return;
    type(field, kept);
    const form = field.closest("[data-draft-form]");
    if (form) note((line) => form.prepend(line), form.dataset.draftForm, field);
    else note((line) => field.closest(".q-field").parentElement.after(line), field.dataset.draft, field);
  }

  function look(root) {
    if (!window.did_handshake) setTimeout(() => look(root), 50);
    else if (root.isConnected) root.querySelectorAll("[data-draft]").forEach(restore);
  }

  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.dataset?.draft) keep(field.dataset.draft, field.value);
    const form = event.isTrusted && field.closest?.("[data-draft-form]");
    if (form) unsaved.add(form.dataset.draftForm);
  });

  window.addEventListener("beforeunload", (event) => {
    const lost = document.getElementById("popup")?.ariaHidden === "false"; // the page reloads to reach the server again
    if (unsaved.size && !lost) event.preventDefault();
  });

  new MutationObserver((changes) => {
    for (const change of changes)
      for (const node of change.addedNodes) if (node instanceof Element) look(node.parentElement ?? node);
  }).observe(document.documentElement, { childList: true, subtree: true });

  for (const name of names()) {
    const at = JSON.parse(localStorage.getItem(PREFIX + name))?.at ?? 0;
    if (Date.now() - at > MAX_AGE) localStorage.removeItem(PREFIX + name);
  }

  return {
    read,
    forget,
    keep(name, value) {
      keep(name, value);
      unsaved.add(name);
    },
    /** Say that the server put a whole form back. */
    restored(name) {
      const form = [...document.querySelectorAll("[data-draft-form]")].find((one) => one.dataset.draftForm === name);
      if (form) note((line) => form.prepend(line), name, form);
    },
  };
})();
