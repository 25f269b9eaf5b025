/**
 * Tells what a terminal sends by itself from what a person types.
 *
 * xterm.js hands both to the same listener.  While old output is drawn again, the answers to the
 * questions in it must not reach the shell a second time; what is typed meanwhile must.
 */

// Device attributes and reports: CSI with a private prefix (keys never have one, mouse reports have
// "<"), or with a final that only reports have.  A modified F3 looks like a cursor report in line 1
// (CSI 1;2R) and counts as one: while muted, that key is lost.
const CSI_ANSWER = "\\x1b\\[(?:[?>=][0-9;:]*[ $]?[@-~]|[0-9;:]*(?:\\$y|[cnRtx]))";
// Colours, settings, version, clipboard: a string up to its terminator.
const STRING_ANSWER = "\\x1b[\\]P_^X][^\\x07\\x1b]*(?:\\x07|\\x1b\\\\)";
const ANSWERS = new RegExp(`^(?:${CSI_ANSWER}|${STRING_ANSWER})+$`);

// The mouse in its SGR and its oldest form, and the window's focus.
const REPORTS = /^(?:\x1b\[(?:<[0-9;]+[Mm]|M[\s\S]{3}|[IO]))+$/;

/** Whether `data` is only answers to questions that came as output. */
export function isAnswer(data: string): boolean {
  return ANSWERS.test(data);
}

/** Whether `data` is only reports of mouse and focus, which mean nothing a moment later. */
export function isReport(data: string): boolean {
  return REPORTS.test(data);
}
