// A Mermaid diagram of a report. It is shown as an image: an image runs no scripts, loads nothing and leads nowhere.
let count = 0;

// While it draws, the library puts labels into the page as markup. Nothing but line breaks and <<stereotypes>> is let
// through as such.
const MARKUP = /<<\w+>>|<br\s*\/?>|<(?=[a-z\/!?])/gi;
const withoutMarkup = (code) => code.replace(MARKUP, (found) => (found === "<" ? "‹" : found));

export default {
  template: `
    <figure class="k-diagram">
      <img v-if="image" :src="image" :alt="label">
      <details v-if="image"><summary>{{ summary }}</summary><pre tabindex="0"><code>{{ code }}</code></pre></details>
      <pre v-else tabindex="0"><code>{{ code }}</code></pre>
    </figure>
  `,
  props: {
    code: String,
    label: String,
    summary: String,
  },
  data: () => ({ image: "" }),
  async mounted() {
    // A place without transitions: where motion is reduced they would begin, and the library would measure too early.
    const place = document.createElement("div");
    place.className = "k-drawing";
    try {
      const { mermaid } = await import("nicegui-mermaid");
      mermaid.initialize({
        startOnLoad: false,
        securityLevel: "strict",
        htmlLabels: false,
        flowchart: { htmlLabels: false },
        suppressErrorRendering: true,
        theme: document.body.classList.contains("body--dark") ? "dark" : "default",
      });
      document.body.append(place);
      const { svg } = await mermaid.render(`k-diagram-${count++}`, withoutMarkup(this.code), place);
      const drawn = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
      const [width, height] = drawn.getAttribute("viewBox").split(/[ ,]+/).slice(2);
      drawn.setAttribute("width", width);
      drawn.setAttribute("height", height);
      this.image = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawn.outerHTML)}`;
    } catch {
      // not a diagram: its text is shown
    } finally {
      place.remove();
    }
  },
};
