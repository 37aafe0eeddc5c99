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
};

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
  set_example(*verb, "hearth download Qwen/Qwen3-0.6B");
  verb->callback([=] {
    net::HubName name = net::parse_hub_name(arguments->name);
    if (arguments->files.empty()) return say("{}\n", download(name.text()));
    if (!name.path.empty())
      user_error("{} already contains a file; give the other files after a name without a file", name.text());
    for (const std::string& file : arguments->files) {
      name.path = file;
      say("{}\n", download(name.text()));
    }
  });
}

}  // namespace hearth::cli
