// What every part of the page is written with.
import htm from "htm";
import { h, render } from "preact";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export const html = htm.bind(h);
export { render };
