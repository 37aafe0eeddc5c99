#include "io/page_style.h"

namespace hearth::io {

std::string_view page_style() {
  return R"css(
:root{color-scheme:light dark;--bg:#fbfaf8;--panel:#fff;--ink:#1d1b18;--soft:#6f6962;--line:#e6e1da;--accent:#2b6cb0;--good:#2f855a;--bad:#c53030;
--c0:#3182ce;--c1:#dd6b20;--c2:#38a169;--c3:#805ad5;--c4:#e53e3e;--c5:#319795;--c6:#d53f8c;--c7:#b7791f;--c8:#718096;--c9:#2c5282;
--sans:system-ui,sans-serif;--mono:ui-monospace,monospace}
@media(prefers-color-scheme:dark){:root{--bg:#171614;--panel:#211f1c;--ink:#ece8e1;--soft:#a39c92;--line:#3a3631;--accent:#90cdf4;--good:#68d391;--bad:#fc8181;
--c0:#63b3ed;--c1:#f6ad55;--c2:#68d391;--c3:#b794f4;--c4:#fc8181;--c5:#4fd1c5;--c6:#f687b3;--c7:#ecc94b;--c8:#a0aec0;--c9:#bee3f8}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 var(--sans)}
main{max-width:1180px;margin:0 auto;padding:28px 20px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:18px;margin:34px 0 12px}
a{color:var(--accent)}:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.subtitle,.note{color:var(--soft)}.note{font-size:13px;margin:-8px 0 12px;max-width:80ch}
.command{font-family:var(--mono);font-size:13px;color:var(--soft);overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin-top:16px}
.fact,.chart,.plot,.scroll,figure{background:var(--panel);border:1px solid var(--line);border-radius:10px}
.fact{padding:10px 14px}.fact b{display:block;font-size:19px;overflow-wrap:anywhere}.fact span{color:var(--soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(420px,100%),1fr));gap:14px;align-items:start}
.chart{display:block;width:100%;height:auto}.chart text{font-family:var(--sans)}
.title{font-size:15px;font-weight:600;fill:var(--ink)}.tick{font-size:12px;fill:var(--soft)}.grid{stroke:var(--line)}
.scroll{overflow:auto;padding:12px}
table{border-collapse:collapse;font-size:13px}td,th{padding:5px 8px;text-align:center;min-width:34px}
th{font-weight:500;color:var(--soft)}th.row{text-align:right}
figure{margin:0;padding:8px;font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin-bottom:10px;font-size:13px}
.legend i{display:inline-block;width:12px;height:12px;border:1px solid var(--line);border-radius:3px;margin-right:5px;vertical-align:-1px}
.right{color:var(--good)}.wrong{color:var(--bad);font-weight:600}
@media(max-width:600px){main{padding:16px 12px}.facts{grid-template-columns:1fr 1fr}.title{font-size:20px}.tick{font-size:16px}}
)css";
}

}  // namespace hearth::io
