// Shows markup that the server makes, and changes only what differs: whatever has the focus,
// is selected or unfolded stays so.
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
  wanted.forEach((node, at) => {
    const there = from.childNodes[at];
    if (!there) from.append(node);
    else if (same(there, node)) morph(there, node);
    else there.replaceWith(node);
  });
  while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

export default {
  template: "<component :is='is'></component>",
  props: { markup: String, is: String, follow: Boolean },
  mounted() {
    this.show();
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
      const box = this.follow ? this.$el : null;
      const atEnd = box && box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
      morphChildren(this.$el, made.content);
      if (atEnd) box.scrollTop = box.scrollHeight;
    },
  },
};
