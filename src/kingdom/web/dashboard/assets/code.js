// Colours of code, line by line: comments, strings, numbers and words of the language. Only text is split, never markup.
window.kingdomCode = (() => {
  const C_WORDS =
    "abstract as async await bool boolean break byte case catch char class const continue crate default defer delete do double else enum export extends extern false final finally float fn for from func function go if impl implements import in instanceof int interface let long loop map match mod mut namespace new nil null number of override package private protected public range return self short static string struct super switch this throw throws trait true try type typeof undefined unsafe use val var void when where while yield";
  const PYTHON_WORDS =
    "False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield";
  const SHELL_WORDS =
    "case do done echo elif else esac exit export fi for function if in local readonly return set shift source then unset until while true false";
  const SQL_WORDS =
    "add all alter and as asc begin between by case check column commit constraint create default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null on or order outer primary references returning right rollback select set table then union unique update using values view when where with";
  const HASH = "#.*";
  const SLASHES = "\\/\\/.*|\\/\\*.*?(?:\\*\\/|$)|^\\s*\\*(?:\\s.*|\\/)?$";
  const DASHES = "--.*";
  const FAMILIES = {
    c: [SLASHES, C_WORDS, "c cc cpp cs css dart go gradle groovy h hpp java js json jsx kt kts less mjs php proto rs scala scss swift ts tsx vue zig"],
    python: [HASH, PYTHON_WORDS, "py pyi python"],
    shell: [HASH, SHELL_WORDS, "bash cfg conf dockerfile env ini makefile mk rb sh shell tf toml yaml yml zsh"],
    sql: [DASHES, SQL_WORDS, "hs lua sql"],
  };
  const STRINGS = "\"(?:[^\"\\\\]|\\\\.)*\"?|'(?:[^'\\\\]|\\\\.)*'?|`(?:[^`\\\\]|\\\\.)*`?";
  const NUMBERS = "\\b(?:0x[0-9a-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b";
  const byEnding = new Map();
  for (const [comment, words, endings] of Object.values(FAMILIES)) {
    const flags = words === SQL_WORDS ? "gi" : "g";
    const pattern = new RegExp(`(${comment})|(${STRINGS})|(${NUMBERS})|\\b(${words.split(" ").join("|")})\\b`, flags);
    for (const ending of endings.split(" ")) byEnding.set(ending, pattern);
  }
  const CLASSES = [null, "k-code-comment", "k-code-string", "k-code-number", "k-code-word"];

  /** Split a line into pairs of class and text; ``name`` is a file name or a language. */
  function tokens(text, name) {
    const pattern = byEnding.get(String(name ?? "").toLowerCase().split(/[./]/).pop());
    if (!text || !pattern) return [["", text ?? ""]];
    const parts = [];
    let at = 0;
    for (const found of text.matchAll(pattern)) {
      if (found.index > at) parts.push(["", text.slice(at, found.index)]);
      parts.push([CLASSES[found.findIndex((group, index) => index > 0 && group !== undefined)], found[0]]);
      at = found.index + found[0].length;
    }
    if (at < text.length) parts.push(["", text.slice(at)]);
    return parts;
  }

  return { tokens };
})();
