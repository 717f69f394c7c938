// Shows markup that the server makes, and changes only what differs: whatever has the focus,
// is selected, ticked or unfolded stays so.  Moments are told by the reader's own clock, and
// charts say what they show where one points.
function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.id === b.id;
}

function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) {
    const kept = name === "open" && from.nodeName === "DETAILS";
    if (!to.hasAttribute(name) && !kept) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  morphChildren(from, to);
}

function morphChildren(from, to) {
  const wanted = [...to.childNodes];
  const ids = new Set(wanted.map((node) => node.id).filter(Boolean));
  // What has an id keeps its element wherever it goes: a row that was ticked stays ticked.
  for (const node of [...from.children]) if (node.id && !ids.has(node.id)) node.remove();
  const known = new Map([...from.children].filter((one) => one.id).map((one) => [one.id, one]));
  wanted.forEach((node, at) => {
    const kept = node.id && known.get(node.id);
    if (kept && kept !== from.childNodes[at]) from.insertBefore(kept, from.childNodes[at] || null);
    const there = from.childNodes[at];
    if (!there) from.append(node);
    else if (same(there, node)) morph(there, node);
    else if (there.id && ids.has(there.id)) from.insertBefore(node, there);
    else there.replaceWith(node);
  });
  while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

// -- moments ---------------------------------------------------------------------------

const DAY_MS = 86400000;

function told(seconds, span) {
  const at = new Date(1000 * seconds);
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (span === undefined || span <= 3600) time.second = "2-digit";
  if (span !== undefined && span > 4 * 86400) return at.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  const clock = at.toLocaleTimeString(undefined, time);
  const isToday = at.toDateString() === new Date().toDateString();
  if (span === undefined ? isToday : span <= DAY_MS / 1000) return clock;
  return `${at.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${clock}`;
}

function tell(root) {
  for (const one of root.querySelectorAll("time[data-s]")) {
    const span = one.dataset.span === undefined ? undefined : Number(one.dataset.span);
    one.textContent = told(Number(one.dataset.s), span);
    one.title = new Date(1000 * Number(one.dataset.s)).toLocaleString();
  }
}

// -- charts ----------------------------------------------------------------------------

let tip = null;

function hideTip() {
  if (tip) tip.hidden = true;
}

function showTip(plot, part) {
  const shown = JSON.parse(plot.dataset.hover);
  const lines = [];
  for (const line of shown.lines) {
    let best = -1;
    line.x.forEach((x, at) => {
      if (best < 0 || Math.abs(x - part) < Math.abs(line.x[best] - part)) best = at;
    });
    if (best >= 0 && Math.abs(line.x[best] - part) <= 0.05) lines.push([line.label, line.v[best]]);
  }
  if (!lines.length) return hideTip();
  if (!tip) {
    tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("aria-hidden", "true");
    document.body.append(tip);
  }
  const [low, high] = shown.ends;
  const at = low + part * (high - low);
  const head = shown.moments ? told(at, Math.min(high - low, 86400)) : shown.head;
  tip.replaceChildren();
  for (const words of [[head], ...lines]) {
    const row = document.createElement("div");
    row.textContent = words.filter(Boolean).join(" ");
    tip.append(row);
  }
  tip.hidden = false;
  const box = plot.querySelector("svg").getBoundingClientRect();
  const x = box.left + part * box.width;
  tip.style.left = `${Math.min(x + 12, window.innerWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.max(4, box.top - 4)}px`;
}

function pointed(event) {
  const plot = event.target.closest && event.target.closest(".plot[data-hover]");
  if (!plot) return hideTip();
  const box = plot.querySelector("svg").getBoundingClientRect();
  const part = (event.clientX - box.left) / (box.width || 1);
  if (part < 0 || part > 1) hideTip();
  else showTip(plot, part);
}

export default {
  template: "<component :is='is'></component>",
  props: { markup: String, is: String, follow: Boolean },
  mounted() {
    this.$el.addEventListener("pointermove", pointed);
    this.$el.addEventListener("pointerdown", pointed);
    this.$el.addEventListener("pointerleave", hideTip);
    this.$el.addEventListener("change", (event) => this.ticked(event.target));
    this.show();
  },
  unmounted() {
    hideTip();
  },
  watch: {
    markup() {
      this.show();
    },
  },
  methods: {
    show() {
      const made = document.createElement("template");
      made.innerHTML = this.markup;
      tell(made.content);
      const box = this.follow ? this.$el : null;
      const atEnd = box && box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
      morphChildren(this.$el, made.content);
      if (atEnd) box.scrollTop = box.scrollHeight;
      for (const one of this.$el.querySelectorAll("nav [aria-current=page]")) {
        if (one.offsetParent) one.scrollIntoView({ block: "nearest", inline: "center" });
      }
    },
    ticked(box) {
      if (box.matches("[data-pick-all]")) {
        for (const one of this.$el.querySelectorAll("[data-pick]")) one.checked = box.checked;
      } else if (!box.matches("[data-pick]")) {
        return;
      }
      const picked = [...this.$el.querySelectorAll("[data-pick]:checked")];
      this.$emit("picked", picked.map((one) => one.value));
    },
  },
};
