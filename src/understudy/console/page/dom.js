/* Small helpers around the document. Text from the server is only ever set as text. */

export const byId = (id) => document.getElementById(id);

/** An element with properties ("class" and attributes with a dash are attributes) and children. */
export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class" || name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** Set the text of a node, only if it differs: live regions then speak once. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Replace a button's text and keep its key, the <kbd> inside. */
export function label(button, text) {
  const first = button.firstChild;
  const wanted = button.querySelector("kbd") ? `${text} ` : text;
  if (first && first.nodeType === Node.TEXT_NODE) {
    if (first.nodeValue !== wanted) first.nodeValue = wanted;
  } else button.prepend(wanted);
}

/** A number for people: about four digits. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 100 ? 1 : size >= 1 ? 2 : 4 });
}

export const percent = (share) => share === null || share === undefined ? "–" : `${(100 * share).toFixed(0)}%`;

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** Fill a table with a head and rows of texts; the first cell of a row is its header. */
export function fillTable(table, head, rows) {
  const signature = JSON.stringify([head, rows]);
  if (table.dataset.signature === signature) return;
  table.dataset.signature = signature;
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", textContent: text })))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) =>
      make(i ? "td" : "th", i ? { textContent: text } : { scope: "row", textContent: text }))))),
  );
}

/** Fill the body of a table with pairs of a name and a text. */
export function fillPairs(body, pairs) {
  body.replaceChildren(...pairs.map(([name, text]) =>
    make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", { textContent: text }))));
}

/** Ask a question in a dialog; true if the person says yes. */
export function confirm(text) {
  const dialog = byId("confirm");
  say(byId("confirm-text"), text);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
