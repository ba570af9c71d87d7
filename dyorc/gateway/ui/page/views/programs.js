// All programs with all their figures.
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Head, Panel } from "../widgets/basics.js";
import { ProgramTable } from "../widgets/program_table.js";

export function Programs() {
  const { now } = useLive();
  return html`<div class="view">
    <${Head} title="Programs" note="What the workflows call. Waiting and running are calls; a batch holds several." />
    <${Panel}><${ProgramTable} programs=${now?.programs} /><//>
  </div>`;
}
