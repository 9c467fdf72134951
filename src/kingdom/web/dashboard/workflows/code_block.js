// A block of code of a report, in colours. Every word is put into the page by {{ }}, as text.
export default {
  template: `
    <pre tabindex="0"><code><template v-for="(line, index) in code.split('\\n')" :key="index"><span
      v-for="(part, place) in tokens(line)" :key="place" :class="part[0]">{{ part[1] }}</span>{{ '\\n' }}</template></code></pre>
  `,
  props: {
    code: String,
    language: String,
  },
  methods: {
    tokens(line) {
      return window.kingdomCode?.tokens(line, this.language) ?? [["", line]];
    },
  },
};
