// Runs before the page is drawn, so that it never flashes in the wrong colours. Without a choice, the system's scheme counts.
{
  const chosen = localStorage.getItem("dyorc.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
