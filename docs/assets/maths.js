// Every formula that the build marked becomes KaTeX's, once the page is there.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".arithmatex")) {
    const displayed = place.tagName === "DIV";
    const formula = place.textContent.trim().replace(/^\\[([]/, "").replace(/\\[)\]]$/, "");
    katex.render(formula, place, { displayMode: displayed, throwOnError: false });
  }
});
