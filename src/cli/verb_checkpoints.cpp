#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "io/checkpoint.h"

namespace hearth::cli {
namespace {

std::string local_time(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(system))));
}

std::string to_line(const io::CheckpointInfo& info, const std::string& state) {
  return fmt::format("{:>10}  {:>10}  {}  {}\n", info.step, human_bytes(info.num_bytes),
                     local_time(info.written), state);
}

void list(const fs::path& folder) {
  const std::vector<io::CheckpointInfo> all = io::list_checkpoints(folder);
  if (all.empty()) {
    say("no checkpoint in {} yet\n", folder.string());
    return;
  }
  say("{:>10}  {:>10}  {:<19}\n", "step", "size", "written");
  bool is_newest = true;
  for (const io::CheckpointInfo& info : all) {
    const bool complete = info.fault.empty();
    const char* good = is_newest ? "complete; --resume resumes from here" : "complete";
    say("{}", to_line(info, complete ? good : "skipped: " + info.fault));
    is_newest = is_newest && !complete;
  }
}

Json to_json(const std::vector<io::CheckpointInfo>& all) {
  Json json = Json::array();
  for (const io::CheckpointInfo& info : all) {
    json.push_back({{"step", info.step},
                    {"bytes", info.num_bytes},
                    {"written", local_time(info.written)},
                    {"complete", info.fault.empty()},
                    {"fault", info.fault}});
  }
  return json;
}

}  // namespace

void add_checkpoints(CLI::App& app) {
  struct Arguments {
    std::string run;
    int64_t keep = 0;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb =
      app.add_subcommand("checkpoints", "List and verify the checkpoints of a run, or delete old ones");
  verb->add_option("run", arguments->run, "Run folder")->required();
  const CLI::Option* keep =
      verb->add_option("--prune", arguments->keep, "Delete all checkpoints except the newest N");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth checkpoints runs/demo --prune 1");
  verb->callback([=] {
    const fs::path run = arguments->run;
    if (!fs::exists(run / kRunRecipe))
      user_error("expected a run folder with config.yaml at '{}'", run.string());
    if (keep->count() > 0 && arguments->keep < 1)
      user_error("expected at least 1 for --prune, got {}", arguments->keep);
    const fs::path folder = run / kCheckpoints;
    std::vector<io::CheckpointInfo> deleted;
    if (keep->count() > 0) deleted = io::prune_checkpoints(folder, arguments->keep);
    if (arguments->json) {
      return print_json(
          {{"checkpoints", to_json(io::list_checkpoints(folder))}, {"deleted", to_json(deleted)}});
    }
    for (const io::CheckpointInfo& info : deleted) say("{}", to_line(info, "deleted"));
    list(folder);
  });
}

}  // namespace hearth::cli
