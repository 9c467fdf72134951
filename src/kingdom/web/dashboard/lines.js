// Many lines in one element. Every word is put into the page as a text node: nothing of it is read as HTML.
import { h } from "vue";

const TAGS = { table: ["tbody", "tr", "td"], list: ["ol", "li", "div"], log: ["div", "div", "div"] };

function part([text, classes, href, title]) {
  const shared = { class: classes || undefined, title: title || undefined };
  return href ? h("a", { ...shared, href }, text) : h("span", shared, text);
}

export default {
  // steady: rows change their words and stay where they are, so that nothing moves while lines come. A row with the
  // keyboard's focus keeps its words until the focus leaves the list: nobody follows a link that was another one.
  props: { kind: String, label: String, columns: Array, rows: Array, steady: Boolean },
  data() {
    return { held: null };
  },
  mounted() {
    if (!this.steady) return;
    this.$el.addEventListener("focusin", () => (this.held ??= this.rows));
    this.$el.addEventListener("focusout", (event) => {
      if (!this.$el.contains(event.relatedTarget)) this.held = null;
    });
  },
  render() {
    const [outer, inner, cell] = TAGS[this.kind];
    const rows = (this.held ?? this.rows ?? []).map(([key, classes, cells], place) =>
      h(
        inner,
        { key: this.steady ? place : key, class: classes || undefined },
        cells.map(([classes, parts]) => h(cell, { class: classes || undefined }, parts.map(part))),
      ),
    );
    if (this.kind === "log") return h(outer, rows); // inside an element that has the name
    if (this.kind === "list") return h(outer, { "aria-label": this.label }, rows);
    const head = (this.columns ?? []).map(([title, classes, width]) =>
      h("th", { scope: "col", class: classes || undefined, style: width ? { width } : undefined }, title),
    );
    return h("table", { "aria-label": this.label }, [h("thead", h("tr", head)), h(outer, rows)]);
  },
};
