#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "base/file.h"

namespace hearth {

/// The children of this process meet faults/faults.cpp while it lives.
class Faults {
 public:
  explicit Faults(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    setenv("LD_PRELOAD", HEARTH_FAULTS, 1);
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Faults() {
    unsetenv("LD_PRELOAD");
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

/// Every file of a folder with its contents, but for the lock, which names its last owner.
inline std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != ".lock")
      contents[entry.path().string()] = read_file(entry.path());
  }
  return contents;
}

}  // namespace hearth
