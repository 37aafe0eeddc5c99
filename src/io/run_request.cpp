#include "io/run_request.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/process.h"
#include "base/run_files.h"
#include "base/text.h"

namespace hearth::io {
namespace {

constexpr const char* kRequestFile = ".request";
constexpr const char* kNames[] = {"none", "checkpoint", "stop"};
constexpr double kCheckSeconds = 0.5;

}  // namespace

void send_request(const fs::path& run, RunRequest request) {
  refuse_link(run / kRequestFile);
  write_file_atomically(run / kRequestFile, kNames[static_cast<size_t>(request)]);
}

RequestReader::RequestReader(const fs::path& run) : file_(run / kRequestFile) { unlink(file_.c_str()); }

RunRequest RequestReader::take() {
  const double now = process_seconds();
  if (now < due_at_) return RunRequest::none;
  due_at_ = now + kCheckSeconds;
  const int descriptor = open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return RunRequest::none;
  std::array<char, 32> text{};
  const ssize_t count = read(descriptor, text.data(), text.size());
  close(descriptor);
  unlink(file_.c_str());
  const std::string_view name = trimmed({text.data(), count < 0 ? 0 : static_cast<size_t>(count)});
  for (const RunRequest request : {RunRequest::checkpoint, RunRequest::stop})
    if (name == kNames[static_cast<size_t>(request)]) return request;
  return RunRequest::none;
}

}  // namespace hearth::io
