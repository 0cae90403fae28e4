"""How the page of a night looks: on a screen, light and dark, on a phone, and in print."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark;
  --paper: #fcfbf8; --card: #ffffff; --ink: #1d2430; --soft: #667080; --line: #e2dfd8; --faint: #f2f0eb;
  --good: #2c7a4b; --bad: #b5362c; --open: #9a6700; --mark: #2b6cb0;
  --charged: #7fb2d6; --used: #2f6f9f; --reserve: #e9c9a5; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171c; --card: #1b1f26; --ink: #e3e6eb; --soft: #98a2b0; --line: #2d333d; --faint: #22272f;
  --good: #5dbb83; --bad: #f0776c; --open: #e0b04a; --mark: #7db4e6;
  --charged: #38617f; --used: #6fb1de; --reserve: #5c4630; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.4rem 0 .7rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.2rem 0 .35rem; }
p { margin: .3rem 0; }
a { color: var(--mark); }
code, pre, .name { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: .9em; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.say { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.6rem; line-height: 1.15; font-weight: 650; }
.tile span { color: var(--soft); font-size: .85rem; }
.bar { display: flex; height: .6rem; border-radius: .3rem; overflow: hidden; background: var(--faint); }
.bar i { display: block; min-width: 2px; }
.bar .b-good, .key .b-good { background: var(--good); } .bar .b-bad, .key .b-bad { background: var(--bad); }
.bar .b-open, .key .b-open { background: var(--open); }
.b-run { background: var(--used); } .b-load { background: var(--charged); }
.b-wait { background: var(--open); } .b-idle { background: var(--line); }
.b-reserve { background: var(--reserve); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--soft); margin: .45rem 0; }
.key i { display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem; margin-right: .4rem;
  vertical-align: -.05rem; }
.key i.tick { width: 2px; border-radius: 0; margin: 0 .55rem 0 .15rem; }
.t-start { background: var(--mark); } .t-failure { background: var(--bad); }
.t-breaker { background: repeating-linear-gradient(var(--bad) 0 3px, transparent 3px 5px); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: .38rem .5rem; border-top: 1px solid var(--line); }
thead th { border-top: 0; background: var(--faint); font-size: .8rem; font-weight: 600; color: var(--soft);
  white-space: nowrap; }
.n { text-align: right; white-space: nowrap; }
td.zero { color: var(--soft); }
td.name { min-width: 8rem; overflow-wrap: anywhere; } td.say { min-width: 9rem; }
tr.phone { display: none; }
tr.below td { border-top: 0; padding-top: 0; padding-left: 1.2rem; color: var(--soft); }
td .bar { width: 5.5rem; margin-top: .5rem; height: .45rem; }
.causes { list-style: none; margin: 0; padding: 0; }
.causes li { display: grid; grid-template-columns: 4.2rem 1fr; gap: 0 .9rem; padding: .55rem 0;
  border-top: 1px solid var(--line); }
.causes li:first-child { border-top: 0; }
.causes .count { font-size: 1.15rem; font-weight: 650; text-align: right; }
.causes .sub { grid-column: 2; color: var(--soft); font-size: .85rem; }
.tag { display: inline-block; font-size: .75rem; border: 1px solid currentColor; border-radius: .25rem;
  padding: 0 .35rem; margin-right: .5rem; vertical-align: .06rem; white-space: nowrap; }
.chart { display: grid; grid-template-columns: 8.5rem 1fr; gap: 0 .7rem; align-items: center; }
.chart .label { font-size: .85rem; text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chart svg { display: block; width: 100%; }
.pool { height: 9.5rem; background: var(--card); border: 1px solid var(--line); }
.lane { height: 1.05rem; background: var(--faint); margin: 1px 0; }
.ticks { align-self: stretch; position: relative; min-height: 9.5rem; font-size: .78rem; color: var(--soft); }
.ticks span { position: absolute; right: 0; transform: translateY(-50%); white-space: nowrap; }
.ticks span.top { transform: none; } .ticks span.end { transform: translateY(-100%); }
.axis { grid-column: 2; display: flex; justify-content: space-between; font-size: .78rem; color: var(--soft);
  margin-top: .15rem; }
.a-charged { fill: var(--charged); } .a-used { fill: var(--used); opacity: .85; }
.a-reserve { fill: var(--reserve); opacity: .6; }
.l-start { stroke: var(--mark); stroke-width: 1.5; opacity: .7; } .l-failure { stroke: var(--bad); stroke-width: 2; }
.l-breaker { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3; }
.l-grid { stroke: var(--line); stroke-width: 1; }
.r-run { fill: var(--used); } .r-bad { fill: var(--bad); }
details { border: 1px solid var(--line); border-radius: .4rem; background: var(--card); margin: .45rem 0; }
summary { cursor: pointer; padding: .45rem .8rem; }
details > div { padding: 0 .8rem .7rem; }
details table { border: 0; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; margin: 0;
  overflow-x: auto; line-height: 1.45; }
.steps { display: grid; gap: .6rem; }
.steps pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.steps p { color: var(--soft); font-size: .88rem; margin: .15rem 0 0 1rem; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .82rem; }
@media (max-width: 72rem) { td .bar { width: 3rem; } td.name { min-width: 7rem; } th, td { padding: .38rem .35rem; } }
@media (max-width: 46rem) {
  main { padding: 1.2rem .8rem 2rem; } h1 { font-size: 1.35rem; } .wide { display: none; }
  th, td { padding: .34rem .2rem; font-size: .84rem; } thead th { font-size: .7rem; }
  td.name { min-width: 5.4rem; font-size: .76rem; }
  td.say { min-width: 0; } tr.phone { display: table-row; } tr.below td > div { max-width: calc(100vw - 5.5rem); }
  details > div { padding: 0 .4rem .5rem; } .tile b { font-size: 1.3rem; }
  .chart { grid-template-columns: 5.2rem 1fr; gap: 0 .5rem; } .chart .label { font-size: .76rem; }
  .causes li { grid-template-columns: 3rem 1fr; gap: 0 .6rem; } td .bar { display: none; }
  .axis span:nth-child(even):not(:last-child) { display: none; } .axis span { text-align: center; } }
@media print {
  :root { color-scheme: light; --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --faint: #f1f1f1;
    --good: #1f6b3d; --bad: #a32118; --open: #7a5200; --mark: #1d4f85;
    --charged: #a9cbe3; --used: #35749f; --reserve: #ecd3b5; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  @page { margin: 14mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; } .scroll { overflow: visible; }
  tr, li, .pool, .tile, .steps > div, details, h3 + .chart { break-inside: avoid; } h2, h3 { break-after: avoid; }
  tr.below { break-before: avoid; } thead { display: table-header-group; } pre { white-space: pre-wrap; } }
"""
