// Every word is put into the page by {{ }}, as text: what a file says is never read as HTML.
export default {
  template: `
    <table class="k-diff" :class="{ 'k-diff-inline': inline }" :aria-label="label">
      <colgroup v-if="inline"><col class="k-diff-numbers" /><col class="k-diff-numbers" /><col /></colgroup>
      <colgroup v-else><col class="k-diff-numbers" /><col /><col class="k-diff-numbers" /><col /></colgroup>
      <tbody v-if="inline">
        <tr v-for="(row, index) in lines" :key="index" :class="'k-diff-' + row[0]">
          <td v-if="row[0] === 'hunk'" colspan="3">{{ row[3] }}</td>
          <template v-else>
            <td class="k-diff-number">{{ row[1] }}</td>
            <td class="k-diff-number">{{ row[2] }}</td>
            <td :class="row[0] === 'gone' ? 'k-diff-old' : 'k-diff-new'"><span
              v-for="(part, place) in tokens(row[3])" :key="place" :class="part[0]">{{ part[1] }}</span></td>
          </template>
        </tr>
      </tbody>
      <tbody v-else>
        <tr v-for="(row, index) in rows" :key="index" :class="'k-diff-' + row[0]">
          <td v-if="row[0] === 'hunk'" colspan="4">{{ row[2] }}</td>
          <template v-else>
            <td class="k-diff-number">{{ row[1] }}</td>
            <td class="k-diff-old" :class="{ 'k-diff-none': row[2] === null }"><span
              v-for="(part, place) in tokens(row[2])" :key="place" :class="part[0]">{{ part[1] }}</span></td>
            <td class="k-diff-number k-diff-number-new">{{ row[3] }}</td>
            <td class="k-diff-new" :class="{ 'k-diff-none': row[4] === null }"><span
              v-for="(part, place) in tokens(row[4])" :key="place" :class="part[0]">{{ part[1] }}</span></td>
          </template>
        </tr>
      </tbody>
    </table>
  `,
  props: {
    rows: Array,
    label: String,
    inline: Boolean,
  },
  computed: {
    /** Kind, both numbers and text of each line: what is gone before what came instead. */
    lines() {
      const lines = [];
      let fresh = [];
      const flush = () => {
        lines.push(...fresh);
        fresh = [];
      };
      for (const [kind, oldNumber, oldText, newNumber, newText] of this.rows) {
        if (kind !== "changed") flush();
        if (kind === "hunk") lines.push(["hunk", null, null, oldText]);
        else if (kind === "same") lines.push(["same", oldNumber, newNumber, newText]);
        else {
          if (oldText !== null) lines.push(["gone", oldNumber, null, oldText]);
          if (newText !== null) fresh.push(["came", null, newNumber, newText]);
        }
      }
      flush();
      return lines;
    },
  },
  methods: {
    tokens(text) {
      return window.kingdomCode?.tokens(text, this.label) ?? [["", text]];
    },
  },
};
