#include "exec/device/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/process.h"
#include "base/version.h"

namespace hearth::exec {
namespace {

/// Stored results: kStarted is followed by the id of the process that records, kFailed by the reason.
constexpr std::string_view kStarted = "started by ", kFailed = "failed: ", kMatched = "right",
                           kAbandoned = "open";

}  // namespace

Recorder::Recorder(RecordMode when, const gpu::DeviceInfo& gpu, const fs::path& file)
    : when_(when),
      prefix_(fmt::format("{}|{}|{}|{}|{}|", gpu.name, gpu.architecture, gpu.pci_address, gpu.driver_version,
                          kVersion)),
      path_(when == RecordMode::automatic ? file : fs::path()),
      file_(path_) {}

Recorder::~Recorder() {
  for (const std::string& program : started_) file_.keep(key(program), {.name = std::string(kAbandoned)});
}

bool Recorder::start(const std::string& program) {
  if (path_.empty()) return true;
  const std::string last = file_.find(key(program)).value_or("");
  std::string fault;
  if (last.starts_with(kFailed)) fault = last.substr(kFailed.size());
  if (last.starts_with(kStarted) && !process_runs(last.substr(kStarted.size())))
    fault = "the process that recorded this program last hung or crashed";
  if (!fault.empty()) {
    fault_ = fmt::format("{}; to try again, delete {}", fault, path_.string());
    return false;
  }
  started_.insert(program);
  file_.keep(key(program), {.name = fmt::format("{}{}", kStarted, getpid())});
  return true;
}

void Recorder::finish(const std::string& program) {
  if (started_.erase(program) > 0) file_.keep(key(program), {.name = std::string(kMatched)});
}

void Recorder::turn_off(std::string fault, const std::string& program) {
  fault_ = std::move(fault);
  started_.erase(program);
  if (!path_.empty() && !program.empty()) file_.keep(key(program), {.name = std::string(kFailed) + fault_});
}

}  // namespace hearth::exec
