// Every word is put into the page by {{ }}, as text: what a file says is never read as HTML.
export default {
  template: `
    <table class="k-diff" :aria-label="label">
      <colgroup><col class="k-diff-numbers" /><col /><col class="k-diff-numbers" /><col /></colgroup>
      <tbody>
        <tr v-for="(row, index) in rows" :key="index" :class="'k-diff-' + row[0]">
          <td v-if="row[0] === 'hunk'" colspan="4">{{ row[2] }}</td>
          <template v-else>
            <td class="k-diff-number">{{ row[1] }}</td>
            <td class="k-diff-old" :class="{ 'k-diff-none': row[2] === null }">{{ row[2] }}</td>
            <td class="k-diff-number k-diff-number-new">{{ row[3] }}</td>
            <td class="k-diff-new" :class="{ 'k-diff-none': row[4] === null }">{{ row[4] }}</td>
          </template>
        </tr>
      </tbody>
    </table>
  `,
  props: {
    rows: Array,
    label: String,
  },
};
