// The token stands behind the # of the address, so that it is never sent in a URL.
const said = document.getElementById("said");

async function logIn(token) {
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  said.textContent = answer.ok ? "You are logged in." : (await answer.json()).detail;
}

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  logIn(document.getElementById("token").value);
});

if (location.hash.startsWith("#token=")) {
  const token = location.hash.slice("#token=".length);
  history.replaceState(null, "", "/");
  logIn(token);
}
