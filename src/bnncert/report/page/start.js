// The table appears at once, without pictures; these follow as soon as they are unpacked.

async function start() {
  startCharts();
  table = await unpack("data-rows");
  // A file may have only explanations, weight faults and counts.
  if (table.image.length) {
    startTable();
    startDetails();
  }
  document.documentElement.dataset.ready = "yes";
  if (!table.image.length) return;
  await openFragment();
  await unpackDetails();
  redraw();
  document.documentElement.dataset.pictures = "yes";
}

start().catch((error) => {
  count.textContent = "The rows cannot be shown in this browser.";
  console.error(error);
});
