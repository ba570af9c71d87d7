"""The page's colours and layout. The colours of the series are Okabe and Ito's, which colour-blind people can tell apart."""

_LIGHT = (
    "--paper:#fff;--ink:#1c1e21;--soft:#5b6168;--faint:#e3e5e8;--box:#f6f7f8;--warn:#8a4b00;--warn-box:#fff4e0;"
    "--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b0578d;--s4:#c98a00;--s5:#6b7075;--s6:#3d9fd6;--s7:#7a4b2a;"
)
_DARK = (
    "--paper:#16181b;--ink:#e8eaec;--soft:#a3a9b0;--faint:#33373c;--box:#1f2226;--warn:#ffc46b;--warn-box:#33270f;"
    "--s0:#4ca6e0;--s1:#ff8b45;--s2:#2fc79a;--s3:#e59cc6;--s4:#f0c04a;--s5:#a5abb1;--s6:#9bd4f5;--s7:#c99a78;"
)

PICTURE = (
    "text{fill:var(--ink);font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif}"
    ".label{fill:var(--soft)}.name{fill:var(--soft)}.tiny{font-size:10px;fill:var(--soft)}"
    ".marked{fill:var(--warn);font-size:11px;paint-order:stroke;stroke:var(--paper);stroke-width:3px}"
    ".axis{stroke:var(--soft);fill:none}.grid{stroke:var(--faint)}"
    ".mark{stroke:var(--warn);stroke-dasharray:5 4;fill:none}.bar{stroke:var(--paper);stroke-width:.5}"
)
"""The style of pictures, without the colours, which they also need."""

ALONE = f"svg{{{_LIGHT}background:var(--paper)}}{PICTURE}@media (prefers-color-scheme:dark){{svg{{{_DARK}}}}}"
"""The style of a picture that is a file of its own."""

PAGE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
@media print{{:root{{{_LIGHT}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:1080px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,'Segoe UI','DejaVu Sans',sans-serif}}
h1{{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}}h2{{font-size:1.2rem;margin:2.4rem 0 .5rem}}
h3{{font-size:1rem;margin:1.4rem 0 .3rem}}
p{{margin:.4rem 0}}.soft{{color:var(--soft)}}
.tiles{{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.2rem 0}}
.tile{{flex:1 1 8.5rem;background:var(--box);border-radius:8px;padding:.7rem .9rem}}
.tile b{{display:block;font-size:1.5rem;line-height:1.25;font-variant-numeric:tabular-nums}}
.warning{{background:var(--warn-box);color:var(--warn);border-left:4px solid var(--warn);border-radius:4px;
padding:.6rem .9rem;margin:1rem 0}}
.warning ul{{margin:.3rem 0;padding-left:1.2rem}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.84rem;margin:.5rem 0;min-width:100%}}
th,td{{padding:.28rem .45rem;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}}
th{{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}}
th:first-child,td:first-child,.text td,.text th{{text-align:left}}
th:first-child,td:first-child{{padding-left:0;white-space:normal;min-width:6rem;overflow-wrap:anywhere}}
.text td{{white-space:normal;vertical-align:top;overflow-wrap:anywhere}}
.bad{{color:var(--s1);font-weight:600}}
svg{{display:block;max-width:100%;height:auto;margin:.4rem 0 1rem}}
{PICTURE}
details{{margin:1rem 0;border:1px solid var(--faint);border-radius:8px;padding:.6rem .9rem}}
summary{{cursor:pointer;font-weight:600}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem}}
@media print{{body{{max-width:none;padding:0;font-size:10pt}}
table{{font-size:7.5pt}}th,td{{padding:.12rem .25rem}}.scroll{{overflow:visible}}
svg,.tile,tr,.warning{{break-inside:avoid}}h2,h3{{break-after:avoid}}}}
"""
