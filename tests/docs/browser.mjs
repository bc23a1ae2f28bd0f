// Every page of build/site in a real Chromium: axe-core in both schemes on two screens, console, requests, search.
// Usage: node tests/docs/browser.mjs SITE [FOLDER FOR SCREENSHOTS]; run by `make docs-check`. ONLY=TEXT takes pages by name.
import { createReadStream, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";

const require = createRequire(join(process.cwd(), "build/docs-check/package.json"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [site, shots] = process.argv.slice(2);
const SCHEMES = ["light", "dark"];
const SCREENS = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const SHOWN = ["index.html", "own-model.html", "reference/commands.html", "verify.html"];
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
  ".json": "application/json", ".png": "image/png", ".xml": "application/xml" };

const faults = [];
const server = createServer((request, response) => {
  const path = normalize(join(site, decodeURIComponent(new URL(request.url, "http://x").pathname)));
  if (!path.startsWith(normalize(site)) || !existsSync(path) || statSync(path).isDirectory()) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" });
  return createReadStream(path).pipe(response);
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const home = `http://127.0.0.1:${server.address().port}`;
const pages = readdirSync(site, { recursive: true }).filter((name) => name.endsWith(".html") && name !== "404.html")
  .filter((name) => name.includes(process.env.ONLY ?? "")).sort();
if (!pages.length) throw new Error(`no pages in ${site}: run make docs`);

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
});

async function open(scheme, screen) {
  const page = await (await browser.createBrowserContext()).newPage(); // the theme remembers a scheme
  await page.setViewport(SCREENS[screen]);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  page.on("console", (said) => said.type() === "error" && faults.push(`${page.url()}: console: ${said.text()}`));
  page.on("pageerror", (error) => faults.push(`${page.url()}: script: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(data|blob|about):/.test(request.url()) && !request.url().startsWith(home)) faults.push(`${page.url()}: requests ${request.url()}`);
  });
  page.on("response", (answer) => answer.status() >= 400 && faults.push(`${answer.url()}: ${answer.status()}`));
  return page;
}

let violations = 0;
for (const scheme of SCHEMES) {
  for (const screen of Object.keys(SCREENS)) {
    const page = await open(scheme, screen);
    for (const name of pages) {
      await page.goto(`${home}/${name}`, { waitUntil: "load" });
      await page.evaluate(axe);
      const shown = await page.evaluate(() => document.body.dataset.mdColorScheme);
      if (shown !== { light: "default", dark: "slate" }[scheme]) faults.push(`${name}, ${scheme}: shown in ${shown}`);
      const found = await page.evaluate(async () => (await window.axe.run()).violations.map((v) => ({
        id: v.id, count: v.nodes.length, first: v.nodes[0].target.join(" "), why: v.nodes[0].failureSummary })));
      violations += found.length;
      for (const v of found) faults.push(`${name}, ${scheme}, ${screen}: axe ${v.id}, ${v.count} x, first ${v.first}: ${v.why.replace(/\s+/g, " ")}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      if (wide > 0) faults.push(`${name}, ${screen}: ${wide} px wider than the screen`);
      if (shots && SHOWN.includes(name)) {
        mkdirSync(shots, { recursive: true });
        await page.screenshot({ path: join(shots, `${name.replace(/\W/g, "-")}-${scheme}-${screen}.png`) });
      }
    }
    await page.close();
  }
}

// The site's own search: each query finds one of its pages among the first three.
const searches = JSON.parse(readFileSync(new URL("searches.json", import.meta.url), "utf8"));
const page = await open("light", "desktop");
await page.goto(`${home}/index.html`, { waitUntil: "load" });
await page.click("input.md-search__input");

async function search(query) {
  const input = (text) => page.$eval("input.md-search__input", (box, value) => {
    box.value = value;
    box.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
  }, text);
  const answered = (pattern) => page.waitForFunction((source) =>
    new RegExp(source).test(document.querySelector(".md-search-result__meta").textContent), { timeout: 60000 }, pattern);
  await input("");
  await answered("start searching");
  await input(query);
  await answered("matching documents?|found");
  return page.$$eval(".md-search-result__item", (items) => items.slice(0, 3).map((item) =>
    new URL(item.querySelector("a").href).pathname.slice(1).replace(/\.html$/, "")));
}

for (const { query, pages: wanted } of searches) {
  const found = await search(query);
  if (!found.some((name) => wanted.includes(name))) faults.push(`search for '${query}' finds ${found.join(", ") || "nothing"}, not ${wanted.join(" or ")}`);
}

await browser.close();
server.close();
for (const fault of faults) console.log(fault);
console.log(`${pages.length} pages, 2 schemes, 2 screens: ${violations} axe violations; ${searches.length} searches; ${faults.length} faults`);
process.exit(faults.length ? 1 : 0);
