// Make the theme's pages usable with a keyboard and a screen reader.
"use strict";

// A box that scrolls sideways must take the focus, else no key can scroll it.
function focusScrollingBoxes() {
  for (const box of document.querySelectorAll("article pre, article .table-wrapper, article .output")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
focusScrollingBoxes();
addEventListener("resize", focusScrollingBoxes);
addEventListener("load", focusScrollingBoxes);
