#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/hub.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "run/share_run.h"

namespace hearth::cli {
namespace {

struct UploadArguments {
  std::string run;
  std::string name;
  hub::UploadOptions options;
  bool is_dry = false, json = false;
};

int64_t size_of(const hub::UploadFile& file) {
  return static_cast<int64_t>(file.file.empty() ? file.contents.size() : fs::file_size(file.file));
}

bool is_model_card(const hub::UploadFile& file) { return file.path == "README.md" && file.file.empty(); }

void print_as_json(const net::HubName& name, const std::vector<hub::UploadFile>& files,
                   const std::string& url) {
  Json list = Json::array();
  std::string card;
  for (const hub::UploadFile& file : files) {
    list.push_back({{"path", file.path}, {"bytes", size_of(file)}});
    if (is_model_card(file)) card = file.contents;
  }
  print_json({{"name", name.text()}, {"url", url}, {"files", list}, {"card", card}});
}

void run_upload(const UploadArguments& arguments) {
  const net::HubName name = net::parse_hub_name(arguments.name);
  const std::vector<hub::UploadFile> files = run::files_to_share(arguments.run, name.repo);
  const std::string url = arguments.is_dry ? "" : upload(name, files, arguments.options);
  if (arguments.json) return print_as_json(name, files, url);
  if (!arguments.is_dry) return say("{}\n", url);
  for (const hub::UploadFile& file : files) {
    say("{:>12}  {}\n", human_bytes(size_of(file)), file.path);
    if (is_model_card(file)) say("\n{}\n", file.contents);
  }
}

}  // namespace

void add_upload(CLI::App& app) {
  auto arguments = std::make_shared<UploadArguments>();
  CLI::App* verb = app.add_subcommand(
      "upload",
      "Publish a run or a model folder on the Hugging Face hub, with a model card (needs HF_TOKEN)");
  verb->add_option("run", arguments->run, "Run folder or model folder")->required();
  verb->add_option("name", arguments->name,
                   "ORG/NAME of the repository, which is created if it does not exist")
      ->required();
  verb->add_flag("--private", arguments->options.is_private, "Create a private repository");
  verb->add_flag("--dry-run", arguments->is_dry, "Print the files and the model card, and send nothing");
  verb->add_option("--message", arguments->options.message, "Commit message")->capture_default_str();
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth upload runs/llama-lora me/my-lora --private");
  verb->callback([=] { run_upload(*arguments); });
}

}  // namespace hearth::cli
