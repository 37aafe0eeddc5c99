#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/live_page.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "net/http_server.h"
#include "ui/ui_server.h"

namespace hearth::cli {

void serve_live_page(const std::string& runs, const PageOptions& options) {
  if (!fs::is_directory(runs))
    user_error(
        "there is no folder '{}'; train a run first (hearth train demo), or name the folder of your runs",
        runs);
  net::StopSignals signals;
  const std::string token = net::random_token();
  const ui::UiServer server(runs, fs::read_symlink("/proc/self/exe").string(),
                            {.host = options.host, .port = options.port, .token = token});
  if (options.json) {
    print_json({{"runs", runs}, {"url", server.url()}, {"port", server.port()}, {"token", token}});
  } else {
    say(options.out, "live page of {}: {}?token={}\n", runs, server.url(), token);
    std::fflush(options.out);
  }
  signals.wait();
}

void add_ui(CLI::App& app) {
  struct Arguments {
    std::string runs = "runs";
    PageOptions page;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("ui", "Show the runs of a folder live in the browser");
  verb->add_option("runs", arguments->runs, "Folder of runs, or one run (default: runs)");
  verb->add_option("--host", arguments->page.host,
                   "Address to listen on (default: 127.0.0.1, for browsers on this machine)");
  verb->add_option("--port", arguments->page.port, "Port to listen on (default: any free port)")
      ->check(CLI::Range(0, 65535));
  add_json(*verb, arguments->page.json);
  set_example(*verb, "hearth ui runs --port 7788");
  verb->callback([=] { serve_live_page(arguments->runs, arguments->page); });
}

}  // namespace hearth::cli
