#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/hub.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "net/hub_name.h"

namespace hearth::cli {
namespace {

struct DownloadArguments {
  std::string name;
  std::vector<std::string> files;
  bool json = false;
};

void run_download(const DownloadArguments& arguments) {
  std::vector<net::HubName> names = {net::parse_hub_name(arguments.name)};
  if (!arguments.files.empty()) {
    const net::HubName repo = names.front();
    if (!repo.path.empty())
      user_error("{} already contains a file; give the other files after a name without a file", repo.text());
    names.assign(arguments.files.size(), repo);
    for (size_t i = 0; i < names.size(); ++i) names[i].path = arguments.files[i];
  }
  Json downloads = Json::array();
  for (const net::HubName& name : names) {
    const std::string path = download(name.text());
    downloads.push_back({{"name", name.text()}, {"path", path}});
    if (!arguments.json) say("{}\n", path);
  }
  if (arguments.json) print_json({{"downloads", downloads}});
}

}  // namespace

void add_download(CLI::App& app) {
  auto arguments = std::make_shared<DownloadArguments>();
  CLI::App* verb = app.add_subcommand(
      "download", "Download a model or data from the Hugging Face hub and print its path in the cache");
  verb->add_option("name", arguments->name,
                   "ORG/NAME of a model, datasets/ORG/NAME of data; @REVISION: a branch, tag or commit")
      ->required();
  verb->add_option("files", arguments->files,
                   "Files or folders of the repository (default: of a model, the files that Hearth needs; of "
                   "a dataset, all)");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth download Qwen/Qwen3-0.6B");
  verb->callback([=] { run_download(*arguments); });
}

}  // namespace hearth::cli
