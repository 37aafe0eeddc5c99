#include "data/read_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"

namespace hearth::data {

ReadCheck check_reading(int64_t count, int num_threads, FunctionRef<void(int64_t)> read) {
  std::vector<std::string> faults(static_cast<size_t>(count));
  ThreadPool threads(static_cast<int>(std::clamp<int64_t>(count, 1, std::max(num_threads, 1))));
  threads.run_tasks(count, threads.size(), [&](int64_t index, int) {
    try {
      read(index);
    } catch (const UserError& error) {
      faults[static_cast<size_t>(index)] = error.what();
    }
  });
  ReadCheck check;
  for (int64_t i = 0; i < count; ++i) {
    std::string& fault = faults[static_cast<size_t>(i)];
    if (fault.empty()) {
      check.readable.push_back(i);
    } else {
      check.faults.push_back(std::move(fault));
    }
  }
  return check;
}

std::string describe_skipped(const ReadCheck& check, std::string_view what) {
  constexpr size_t kMaxNamed = 3;
  if (check.faults.empty()) return "";
  const size_t count = check.readable.size() + check.faults.size();
  if (check.readable.empty())
    user_error("none of the {} {} can be read; the first: {}", count, what, check.faults[0]);
  std::string text =
      fmt::format("data.bad_records=skip leaves out {} of {} {}", check.faults.size(), count, what);
  for (size_t i = 0; i < std::min(check.faults.size(), kMaxNamed); ++i)
    text += fmt::format("{}{}", i == 0 ? ": " : "; ", check.faults[i]);
  return check.faults.size() > kMaxNamed ? text + "; ..." : text;
}

}  // namespace hearth::data
