"""The page's style sheet: light, dark, narrow and printed."""

CSS = """
:root {
  --paper: #f7f6f2; --surface: #ffffff; --ink: #1d2126; --muted: #5f6872;
  --line: #e3e1da; --grid: #dedcd5; --code: #f1efe9; --link: #1f5fa8;
  --good: #17714f; --good-bg: #e3f3ec; --note: #33597f; --note-bg: #e6eef7;
  --warn: #8a5200; --warn-bg: #fdf0d9; --fail: #a8201c; --fail-bg: #fde6e4;
  --c1: #2a6db8; --c2: #cc6a14; --c3: #168261; --c4: #7f50b5; --c5: #bd3d66;
  --c6: #80701a;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
    "Liberation Sans", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua",
    Georgia, "Liberation Serif", serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono",
    monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #13161a; --surface: #1b1f24; --ink: #e7eaee; --muted: #9ba5b1;
    --line: #2c323a; --grid: #333a43; --code: #22272e; --link: #83b6ef;
    --good: #6fd3ad; --good-bg: #15342a; --note: #9cc3ec; --note-bg: #1a2c40;
    --warn: #f2bd6b; --warn-bg: #3a2a10; --fail: #ff9d97; --fail-bg: #46191a;
    --c1: #6ca9ea; --c2: #f09b4f; --c3: #4cc39c; --c4: #b791ea; --c5: #ef7c9f;
    --c6: #cbb94f;
  }
}
* { box-sizing: border-box; }
html { color-scheme: light dark; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 var(--sans); font-variant-numeric: tabular-nums;
}
main, header, footer { max-width: 1060px; margin: 0 auto; padding: 0 28px; }
header { padding-top: 52px; }
a { color: var(--link); text-underline-offset: 3px; }
h1, h2 { font-family: var(--serif); font-weight: 600; text-wrap: balance; }
h1 { font-size: 42px; line-height: 1.12; margin: 6px 0 12px;
  letter-spacing: -.012em; overflow-wrap: anywhere; }
h2 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; }
h3 { font-size: 16px; margin: 30px 0 8px; }
p { margin: 0 0 12px; max-width: 72ch; }
.eyebrow { margin: 0; font-size: 13px; font-weight: 600; color: var(--muted);
  letter-spacing: .07em; text-transform: uppercase; }
.lede { font-size: 17px; color: var(--muted); max-width: 76ch; }
.lead { color: var(--muted); margin-bottom: 18px; }
nav { margin-top: 20px; padding: 10px 0; display: flex; flex-wrap: wrap;
  gap: 4px 22px; font-size: 14px; border-top: 1px solid var(--line);
  border-bottom: 1px solid var(--line); }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
section { margin: 52px 0 0; }
header + main > section:first-of-type { margin-top: 34px; }
.cards { display: grid; gap: 16px; grid-template-columns: repeat(3, 1fr);
  margin-top: 16px; }
.card, figure, .scroll, .not-run-box, .checks, .facts, .paragraph {
  background: var(--surface); border: 1px solid var(--line);
  border-radius: 10px; }
.card { padding: 20px 22px 18px; display: flex; flex-direction: column; }
.card.wide { grid-column: 1 / -1; }
.card h3 { margin: 0; font-size: 14px; font-weight: 600; color: var(--muted); }
.card p { font-size: 14px; line-height: 1.5; color: var(--muted); margin: 0; }
.big { display: block; font-size: 40px; line-height: 1.15; font-weight: 600;
  letter-spacing: -.02em; margin: 6px 0 10px; }
.big.words { font-size: 25px; line-height: 1.25; letter-spacing: -.01em;
  margin: 12px 0 13px; }
.big.absent { color: var(--muted); font-weight: 500; }
.meter { position: relative; height: 6px; border-radius: 3px; margin: 0 0 14px;
  background: var(--grid); }
.meter i { position: absolute; top: 0; bottom: 0; left: 0; border-radius: 3px;
  background: var(--c1); }
.meter b { position: absolute; top: -3px; bottom: -3px; min-width: 4px;
  border: solid var(--ink); border-width: 0 1.5px; opacity: .75;
  background: linear-gradient(var(--ink), var(--ink)) center / 100% 1.5px
    no-repeat; }
.card.attacked .meter i { background: var(--c2); }
.card.certified .meter i { background: var(--c3); }
.card p + .sizes { margin-top: auto; }
.card p:has(+ .sizes) { margin-bottom: 12px; }
.sizes { list-style: none; margin: 0; padding: 10px 0 0; font-size: 14px;
  border-top: 1px solid var(--line); display: grid; gap: 3px; }
.sizes li { display: flex; justify-content: space-between; gap: 12px;
  color: var(--muted); }
.sizes data { color: var(--ink); font-weight: 600; }
.triple { display: grid; grid-template-columns: repeat(3, 1fr); }
.triple > div { padding: 0 24px; border-left: 1px solid var(--line); }
.triple > div:first-child { padding-left: 0; border-left: 0; }
.triple > div:last-child { padding-right: 0; }
.triple + p { margin-top: 16px; padding-top: 14px; max-width: none;
  border-top: 1px solid var(--line); }
.warned .big { color: var(--warn); }
.alarmed .big { color: var(--fail); }
.alarmed, .card.alarm { border-color: var(--fail); }
.card.alarm { border-width: 2px; }
.banner { margin: 26px 0 0; padding: 14px 18px; border-radius: 10px;
  border-left: 5px solid; max-width: none; }
.banner p { max-width: none; margin: 0; }
.banner ul { margin: 6px 0 0; padding-left: 20px; }
.banner.fail { background: var(--fail-bg); color: var(--fail); }
.banner.warn { background: var(--warn-bg); color: var(--warn); }
.banner a { color: inherit; }
.pill { display: inline-block; padding: 1px 10px; border-radius: 99px;
  font-size: 12.5px; font-weight: 600; line-height: 1.7; white-space: nowrap;
  background: var(--code); color: var(--muted); }
.pill.pass { background: var(--good-bg); color: var(--good); }
.pill.note { background: var(--note-bg); color: var(--note); }
.pill.warn { background: var(--warn-bg); color: var(--warn); }
.pill.fail { background: var(--fail); color: var(--surface); }
.plots { display: grid; gap: 16px; margin: 16px 0;
  grid-template-columns: repeat(2, minmax(0, 1fr)); }
.plots.three { grid-template-columns: repeat(3, minmax(0, 1fr)); }
figure { margin: 0; padding: 16px 18px 12px; min-width: 0; }
figcaption { font-size: 14px; font-weight: 600; margin-bottom: 10px; }
figcaption small, caption small { font-size: 13px; font-weight: 400;
  color: var(--muted); }
svg.plot { display: block; width: 100%; height: auto; max-width: 560px;
  stroke-linejoin: round; font-family: var(--sans); }
.scroll { overflow-x: auto; margin: 14px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; }
caption { text-align: left; padding: 14px 18px 4px; font-weight: 600;
  font-size: 14px; }
th, td { padding: 8px 14px; text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: 18px; }
th:last-child, td:last-child { padding-right: 18px; }
thead th { font-size: 13px; font-weight: 600; color: var(--muted);
  vertical-align: bottom; border-bottom: 1px solid var(--line); }
tbody th { font-weight: 500; min-width: 110px; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
.num, .nowrap { white-space: nowrap; }
.num { text-align: right; }
td small, tbody th small { display: block; font-size: 12px; font-weight: 400;
  color: var(--muted); }
.worst { font-weight: 700; }
.texts { min-width: 600px; }
.texts.audits { min-width: 860px; }
.compare { font-size: 13.5px; }
.compare th, .compare td { padding: 8px 9px; }
.compare tbody th { min-width: 130px; overflow-wrap: anywhere; }
.compare .num { white-space: normal; }
.absent { color: var(--muted); }
body:has(.compare) :is(main, header, footer) { max-width: 1240px; }
code { font: .88em var(--mono); background: var(--code); border-radius: 4px;
  padding: 1px 5px; overflow-wrap: anywhere; }
pre { margin: 8px 0; padding: 12px 14px; border-radius: 8px; overflow-x: auto;
  background: var(--code); font-size: 14px; line-height: 1.6; }
pre code { padding: 0; background: none; overflow-wrap: normal; }
.not-run-box { border-style: dashed; background: none; padding: 16px 18px;
  margin: 14px 0; color: var(--muted); }
.not-run-box p { margin: 0; }
.not-run-box pre { margin-bottom: 0; color: var(--ink); }
.paragraph { padding: 16px 20px; margin: 14px 0; max-width: none;
  border-left: 4px solid var(--c1); }
.promise-box { display: grid; gap: 16px; }
.promise { background: var(--surface); border: 1px solid var(--line);
  border-left: 4px solid var(--good); border-radius: 10px;
  padding: 14px 20px 12px; }
.promise.measured { border-left-color: var(--note); }
.promise.must-not { border-left-color: var(--fail); }
.promise h3 { margin: 0 0 6px; color: var(--good); }
.promise.measured h3 { color: var(--note); }
.promise.must-not h3 { color: var(--fail); }
.promise ul { margin: 0; padding-left: 20px; }
.promise li { margin-bottom: 6px; max-width: 88ch; overflow-wrap: anywhere; }
sup { line-height: 0; font-size: .75em; }
.caveats { padding-left: 20px; max-width: 76ch; }
.caveats li { margin-bottom: 6px; }
details { margin: 14px 0; font-size: 14.5px; }
summary { cursor: pointer; color: var(--link); }
details p { margin: 10px 0 0; color: var(--muted); max-width: 90ch; }
.facts { margin: 14px 0; padding: 6px 18px; font-size: 14.5px; display: grid;
  grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 44px;
  align-content: start; }
.facts div { display: flex; justify-content: space-between; gap: 18px;
  padding: 7px 0; break-inside: avoid; }
.facts div:nth-child(n + 3) { border-top: 1px solid var(--line); }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
.plots .facts { grid-template-columns: 1fr; margin: 0; padding: 8px 18px; }
.plots .facts div:nth-child(n + 2) { border-top: 1px solid var(--line); }
.checks { list-style: none; margin: 14px 0; padding: 0; }
.checks li { display: grid; grid-template-columns: 92px 1fr; gap: 2px 12px;
  padding: 10px 18px; }
.checks li + li { border-top: 1px solid var(--line); }
.checks p { margin: 0; font-size: 14.5px; max-width: 80ch; }
.checks .detail { color: var(--muted); grid-column: 2; }
.uncovered { margin-top: 20px; padding: 16px 18px; border-radius: 10px;
  border: 1px dashed var(--warn); }
.uncovered p { font-size: 14.5px; max-width: none; }
.uncovered p:last-child { margin-bottom: 0; }
.uncovered .plots { margin: 12px 0 0; }
.gallery { font-size: 12.5px; }
.gallery th, .gallery td { padding: 7px 5px; border: 0 !important;
  text-align: center; vertical-align: middle; line-height: 1.35; }
.gallery tbody th { text-align: left; min-width: 116px; padding-left: 18px;
  font-size: 14px; }
.gallery tbody th small { display: block; font-size: 12px; font-weight: 400;
  color: var(--muted); }
.gallery tr.first > * { padding-top: 14px; }
.gallery tr.first + tr ~ tr.first > *, .gallery tr.last + tr.first > * {
  border-top: 1px solid var(--line) !important; }
.gallery tr.last > * { padding-bottom: 14px; }
.gallery img { display: block; width: 80px; height: 80px; margin: 0 auto 3px;
  image-rendering: pixelated; border-radius: 4px; background: var(--code); }
.right { color: var(--good); }
.wrong { color: var(--fail); font-weight: 600; }
footer { margin-top: 56px; padding-top: 18px; padding-bottom: 44px;
  font-size: 13.5px; color: var(--muted); }
footer p { max-width: none; border-top: 1px solid var(--line);
  padding-top: 16px; }
@media screen and (max-width: 760px) {
  main, header, footer { padding-left: 16px; padding-right: 16px; }
  header { padding-top: 30px; }
  h1 { font-size: 32px; }
  h2 { font-size: 23px; }
  section { margin-top: 42px; }
  .cards, .plots, .plots.three, .triple { grid-template-columns: 1fr; }
  .triple > div, .triple > div:first-child, .triple > div:last-child {
    padding: 14px 0; border-left: 0; border-top: 1px solid var(--line); }
  .triple > div:first-child { border-top: 0; }
  .facts { grid-template-columns: 1fr; }
  .facts div:nth-child(n + 2) { border-top: 1px solid var(--line); }
  .checks li { grid-template-columns: 1fr; gap: 4px; }
  .checks .detail { grid-column: 1; }
  .gallery img { width: 56px; height: 56px; }
  .gallery tbody th { min-width: 92px; padding-left: 12px; }
}
@media print {
  @page { margin: 15mm; }
  :root { --paper: #ffffff; }
  html { color-scheme: light; }
  body { font-size: 12.5px; }
  h1 { font-size: 30px; }
  h2 { font-size: 19px; }
  .lede { font-size: 14px; }
  .card { padding: 12px 14px; }
  .card p, .card h3, .sizes, .facts, .checks p, table, caption, figcaption,
  .uncovered p { font-size: 11.5px; }
  .big { font-size: 25px; }
  .big.words { font-size: 17px; }
  .triple > div { padding: 0 14px; }
  .cards, .plots { gap: 10px; }
  .facts div { padding: 4px 0; }
  th, td { padding: 5px 7px; }
  td small { font-size: 10px; }
  .texts, .texts.audits { min-width: 0; }
  .checks li { padding: 6px 14px; }
  .gallery img { width: 54px; height: 54px; }
  .gallery tbody th { min-width: 90px; }
  main, header, footer { max-width: none; padding-left: 0; padding-right: 0; }
  header { padding-top: 0; }
  nav { display: none; }
  section { margin-top: 28px; }
  h2, h3, .lead { break-after: avoid; }
  .pill { font-size: 10.5px; }
  .card, figure, .scroll, .facts, .uncovered, .checks, .lead, .banner,
  .paragraph, .promise, .not-run-box {
    break-inside: avoid; }
  .scroll { overflow: visible; }
  pre { white-space: pre-wrap; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
