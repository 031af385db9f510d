// Offer the site's other versions. Each version has a folder of its own, and versions.json beside
// the folders lists them, newest first: ["0.3.0", "0.2.0"].
"use strict";

const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
const folder = root.pathname.split("/").at(-2);

// The same page of another version, or its first page if it has no such page.
async function open(version) {
  const other = new URL(`../${version}/`, root);
  const page = new URL(location.pathname.slice(root.pathname.length), other);
  const found = await fetch(page, { method: "HEAD" }).catch(() => ({ ok: false }));
  location.assign(found.ok ? page : other);
}

async function offerVersions() {
  const answer = await fetch(new URL("../versions.json", root));
  if (!answer.ok) return;
  const list = document.createElement("select");
  list.className = "versions";
  list.ariaLabel = "Version";
  for (const version of await answer.json()) {
    list.add(new Option(version, version, false, version === folder));
  }
  list.addEventListener("change", () => open(list.value));
  document.querySelector(".sidebar-brand").after(list);
}

if (/^\d+\.\d+/.test(folder)) offerVersions().catch(() => {}); // else it is a site of one version
