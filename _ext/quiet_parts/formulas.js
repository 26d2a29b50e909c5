// Sets formulas: JSON [{tex, display}] on stdin, {set: [{svg, speech}], glyphs} on stdout.
//
//     node formulas.js FOLDER        where FOLDER/node_modules holds MathJax and SRE
//
// Each `svg` draws with `<use>`; `glyphs` has the path of every glyph, by its id.

const {createRequire} = require("module");
const {resolve} = require("path");

const load = createRequire(`${resolve(process.argv[2])}/`);

// The Speech Rule Engine reads what the signs look like; here is what they mean here.
const MEANT = [
  [/ raised to the (normal )?down tack power/g, " transpose"],
  [/\bcircled dot\b/g, "elementwise times"],
  [/\bpartial differential\b/g, "partial"],
  [/\bl n\b( of\b)?/g, "natural log of"],
  [/\blamda\b/g, "lambda"],
  [/\bnormal (infinity|Phi)\b/g, "$1"],
  [/\bdouble struck E( of)?\b/g, "expectation of"],
  [/ of close bracket/g, " close bracket"],
  [/\bleft arrow\b/g, "becomes"],
  [/\bthe metric of\b/g, "the norm of"],
  [/\bdivides\b/g, "given"],
  [/\bthe 2 by 1 column matrix (\S+) (\S+)/g, "$1 choose $2"],
  [/\b(LN|LayerNorm|RMSNorm|norm|drop|attn|mlp|relu|bend|sigma|prime) times open paren/g,
    "$1 of open paren"],
  [/ (period|comma)$/, ""],
];

async function main() {
  const wanted = JSON.parse(await read(process.stdin));
  const mathjax = await load("mathjax/es5/node-main.js").init({
    loader: {load: ["input/tex", "output/svg"]},
    svg: {fontCache: "global"},
    startup: {typeset: false},
  });
  const speech = load("speech-rule-engine");
  await speech.setupEngine({locale: "en", domain: "clearspeak", modality: "speech"});

  const {adaptor} = mathjax.startup;
  const set = wanted.map(({tex, display}) => ({
    svg: adaptor.innerHTML(mathjax.tex2svg(tex, {display})),
    speech: mended(speech.toSpeech(mathjax.tex2mml(spoken(tex), {display}))),
  }));
  const cache = mathjax.startup.document.outputJax.fontCache.getCache();
  const paths = adaptor.innerHTML(cache).matchAll(/id="([^"]+)" d="([^"]*)"/g);
  const glyphs = Object.fromEntries([...paths].map(([, id, path]) => [id, path]));
  process.stdout.write(JSON.stringify({set, glyphs}));
}

// A word before a bracket is a function: "SiLU of z", not "SiLU z". A wide gap parts two
// formulas, which a comma does for the ear.
function spoken(tex) {
  const word = /\\text\{([A-Za-z]+)\}(?='?\s*(\\[bB]igg?l?|\\left)?\()/g;
  return tex.replace(/([^,;:.\s])\s*\\qquad/g, "$1,\\qquad").replace(word, "\\mathrm{$1}");
}

function mended(words) {
  return MEANT.reduce((text, [said, meant]) => text.replace(said, meant), words.trim());
}

async function read(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}

main().catch(error => {
  console.error(error.stack || error);
  process.exit(1);
});
