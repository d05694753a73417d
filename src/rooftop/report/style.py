"""The report's style sheet: light, dark and print; no font from outside."""

CSS = """
:root{--ink:#1b1f24;--soft:#5b6570;--faint:#d9dee3;--hair:#eceff2;--paper:#fff;--panel:#f6f8f9;--best:#0b6e4f;
--bad:#a8321f;--warn:#8a5a00;--c0:#0072b2;--c1:#d55e00;--c2:#00875f;--c3:#b1508c;--c4:#8a6d00;--c5:#3a93c9;--c6:#5b4b9a;
--c7:#6b6b6b;--run:#8da3b5;--wait:#d55e00;
--p0:#1d4e79;--p1:#7fb0d6;--p2:#c98b2b;--p3:#57697a;--p4:#b9d3e8;
--p5:#3f7fb5;--p6:#e3c48b;--p7:#8f9daa;--p8:#2a8c82;--p9:#9ccfc8;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e4e7ea;--soft:#9aa5b0;--faint:#39424b;--hair:#272e35;--paper:#14181c;
--panel:#1b2026;--best:#52c79b;--bad:#ff8a73;--warn:#e0b04a;--c0:#56b4e9;--c1:#f08a45;--c2:#3fc795;--c3:#dd8fbf;
--c4:#d9bd4a;--c5:#8fc7ee;--c6:#a99be0;--c7:#a8a8a8;--run:#6f8799;--wait:#f08a45;
--p0:#3f7fb5;--p1:#a9cdea;--p2:#d59f45;--p3:#71828f;--p4:#d4e5f3;
--p5:#6ba6d6;--p6:#ecd5a6;--p7:#aab6c0;--p8:#3aa89d;--p9:#b5e0da}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1000px;margin:0 auto;padding:36px 28px 60px}
h1{font-size:25px;line-height:1.25;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:17px;margin:44px 0 10px;padding-top:14px;border-top:1px solid var(--faint)}
h3{font-size:14px;margin:18px 0 4px}
p{margin:6px 0;max-width:76ch}
.sub,.note,figcaption{color:var(--soft)}
.sub{font-size:14px;max-width:none}
.note,figcaption{font-size:13px}
.note{max-width:100ch}
.tight{margin:2px 0}
.answer{margin:22px 0 8px;display:grid;grid-template-columns:1fr 1fr;gap:14px}
.answer>div{background:var(--panel);border-left:3px solid var(--best);padding:12px 16px 13px}
.answer>div.open{border-left-color:var(--warn)}
.answer .q{font-size:13px;color:var(--soft)}
.answer .w{font-size:19px;font-weight:600;line-height:1.3;margin:2px 0 5px}
.answer .f{font-weight:600;font-variant-numeric:tabular-nums}
.answer p{margin:3px 0}
.warn{color:var(--warn)}
.bad{color:var(--bad)}
.lede{font-size:18px;font-weight:600;line-height:1.35;margin:18px 0 10px}
ul.plain{margin:6px 0;padding-left:18px;max-width:78ch}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;margin:10px 0 4px}
.cap{color:var(--soft);font-size:14px;max-width:none;margin:16px 0 0}
.cap b{color:var(--ink)}
th,td{padding:6px 10px;text-align:right;vertical-align:top;border-bottom:1px solid var(--hair);white-space:nowrap}
thead th{font-weight:500;font-size:13px;color:var(--soft);border-bottom:1px solid var(--faint);vertical-align:bottom}
th:first-child,td.l,th.l{text-align:left}
th:first-child{padding-left:0}
tbody th{font-weight:600;white-space:normal;min-width:130px}
tbody th small{display:block;font-weight:400;color:var(--soft);font-size:12px;overflow-wrap:anywhere}
td small{color:var(--soft);font-size:12px}
td .sub2{display:block;color:var(--soft);font-size:12.5px}
.best{color:var(--best);font-weight:700;text-decoration:underline;text-decoration-thickness:2px;
text-underline-offset:4px}
.tie{font-weight:600;text-decoration:underline dotted var(--best);text-underline-offset:4px}
.matrix{table-layout:fixed}
.matrix th:first-child{width:27%}
td.reason{text-align:left;white-space:normal;font-size:13px}
td.void{color:var(--soft);font-size:12.5px;white-space:normal}
.swatch{display:inline-block;width:9px;height:9px;margin-right:7px;background:currentColor}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:8px 34px}
figure{margin:14px 0 6px}
figure h3{margin:0 0 2px}
figcaption{max-width:76ch}
dl{display:grid;grid-template-columns:max-content 1fr;gap:5px 20px;margin:8px 0;font-size:14px}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;background:var(--panel);
padding:9px 12px;margin:6px 0 12px;white-space:pre-wrap;overflow-wrap:anywhere}
details{margin:14px 0}
summary{cursor:pointer;font-weight:600;font-size:14px}
.dense,.dense thead th{font-size:12px}
.dense th,.dense td{padding:3px 4px}
.dense td small{font-size:10.5px}
.dense thead tr+tr th:first-child{text-align:right}
th.mid{text-align:center}
sup{font-size:10px;line-height:0}
footer{margin-top:46px;padding-top:12px;border-top:1px solid var(--faint);font-size:13px;color:var(--soft)}
svg{display:block;width:100%;height:auto;font-family:inherit;font-variant-numeric:tabular-nums}
svg text{font-size:11px;fill:var(--ink)}
svg .tick,svg .unit{fill:var(--soft)}
svg .small{font-size:9.5px;fill:var(--soft)}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
svg .name{font-weight:600}
svg .grid{stroke:var(--hair);fill:none}
svg .axis{stroke:var(--faint);fill:none}
svg .line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}
svg .dashed{stroke-dasharray:5 3}
svg .whisker{fill:none;stroke:currentColor;stroke-width:1.1}
svg .lead{fill:none;stroke:currentColor;stroke-width:.7;opacity:.55}
svg .mark{fill:currentColor}
svg g[class^=t] .name{fill:currentColor}
svg .halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}
.p0{fill:var(--p0)}.p1{fill:var(--p1)}.p2{fill:var(--p2)}.p3{fill:var(--p3)}.p4{fill:var(--p4)}
.p5{fill:var(--p5)}.p6{fill:var(--p6)}.p7{fill:var(--p7)}.p8{fill:var(--p8)}.p9{fill:var(--p9)}
.t0{color:var(--c0)}.t1{color:var(--c1)}.t2{color:var(--c2)}.t3{color:var(--c3)}
.t4{color:var(--c4)}.t5{color:var(--c5)}.t6{color:var(--c6)}.t7{color:var(--c7)}
.running{fill:var(--run)}
.waiting{fill:var(--wait)}
.kv{fill:var(--soft);opacity:.55}
.key span{margin-right:16px}
@media screen and (max-width:760px){main{padding:22px 16px 40px}.answer,.pair{grid-template-columns:1fr}
h1{font-size:21px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:7px}}
@media print{:root{--panel:#f6f8f9;--paper:#fff;--ink:#000;--soft:#444}main{max-width:none;padding:0}
h2,h3,.cap,h2+.note{break-after:avoid}.scroll{overflow:visible}
.dense,.dense thead th,.dense td small{font-size:8px}.dense th,.dense td{padding:2px}
figure,table,pre{break-inside:avoid}
details::details-content{display:block;content-visibility:visible;height:auto}body{font-size:12px}}
"""
