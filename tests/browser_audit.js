() => {
  // Colours as [red, green, blue, alpha], whatever form they are written in.
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const colour = (text) => {
    if (!known.has(text)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = text;
      context.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
      known.set(text, [red, green, blue, alpha / 255]);
    }
    return known.get(text);
  };
  const over = (top, bottom) => [0, 1, 2].map((index) => top[index] * top[3] + bottom[index] * (1 - top[3])).concat(1);
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };

  const behind = (element) => {
    const layers = [];
    const shape = element.closest("g")?.querySelector("rect, polygon:not(.g-tip)");
    if (shape) layers.push(colour(getComputedStyle(shape).fill));
    for (let at = element; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((bottom, top) => over(top, bottom), [255, 255, 255, 1]);
  };
  const isShown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0 && !element.closest(".only-read, .skip, [disabled]");

  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || ["SCRIPT", "STYLE", "TITLE", "title", "OPTION", "NOSCRIPT"].includes(element.nodeName) || !isShown(element)) continue;
    const style = getComputedStyle(element);
    const isSvg = element instanceof SVGElement;
    const found = contrast(over(colour(isSvg ? style.fill : style.color), behind(element)), behind(element));
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (found < needed) faint.add(`${text.slice(0, 40)}: ${found.toFixed(2)}`);
  }
  // What only colour says, such as bars, needs less.
  const panel = behind(document.querySelector(".panel") ?? document.body);
  const root = getComputedStyle(document.documentElement);
  for (const name of ["inputs", "admission", "cold", "queue", "moving", "compute", "engine", "guess", "wrong", "client"]) {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(--do-${name})`;
    const found = contrast(colour(getComputedStyle(probe).color), panel);
    probe.remove();
    if (found < 3) faint.add(`--do-${name}: ${found.toFixed(2)}`);
  }

  const named = (element) =>
    element.getAttribute("aria-label") || element.textContent.trim() || element.labels?.length || element.title || element.querySelector("img[alt]:not([alt=''])");
  const controls = [...document.querySelectorAll("a[href], button, input, select, textarea, [role=img], [tabindex='0']")];
  const width = document.documentElement.clientWidth;
  const widest = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > width + 1 && !element.closest(".scroll, .tl, .graph, .choice, .nav"));
  return {
    faint: [...faint],
    nameless: controls.filter((element) => isShown(element) && !named(element)).map((element) => element.outerHTML.slice(0, 120)),
    headings: document.querySelectorAll("h1").length,
    too_wide: document.documentElement.scrollWidth - width,
    widest: widest.slice(0, 3).map((element) => element.outerHTML.slice(0, 100)),
  };
};
