#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file.h"
#include "paths.h"
#include "temporary_folder.h"

namespace hearth {

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// An empty folder in which `hearth` is run; deleted with the test. It holds tiny.yaml, a recipe that trains
/// in a few milliseconds.
class Program : public testing::Test {
 protected:
  Program() { put("tiny.yaml", kTiny); }

  static constexpr const char* kTiny = R"(model: {name: mlp, num_classes: 10, hidden: [16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 70, val_count: 32, flip: true}
train: {steps: 6, batch: 8, checkpoint_every: 2, log_every: 2}
optimizer: {name: sgd, lr: 0.05}
threads: 1
)";

  struct Result {
    int code = -1;
    std::string out;
    std::string err;
  };
  /// `line` is typed in a shell whose `hearth` is the built one.
  Result shell(const std::string& line) const {
    const std::string command =
        fmt::format("cd '{}' && hearth() {{ '{}' \"$@\"; }} && {{ {}; }} >.out 2>.err",
                    folder_.path().string(), kProgram, line);
    const int status = std::system(command.c_str());
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .out = get(".out"), .err = get(".err")};
  }

  /// The line ends with code 2 and one sentence that holds every one of `parts`.
  void refused(const std::string& line, const std::vector<std::string>& parts) const {
    const Result result = shell(line);
    EXPECT_EQ(result.code, 2) << line << "\n" << result.out << result.err;
    EXPECT_TRUE(result.err.starts_with("hearth: ")) << line << "\n" << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << line << "\n" << result.err;
    EXPECT_EQ(result.err.find(". "), std::string::npos) << line << "\n" << result.err;
    for (const std::string& part : parts) EXPECT_THAT(result.err, testing::HasSubstr(part)) << line;
  }
  /// The line ends with code 0 and nothing on stderr; its output.
  std::string works(const std::string& line) const {
    const Result result = shell(line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out << result.err;
    EXPECT_EQ(result.err, "") << line;
    return result.out;
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }
  bool has(const std::string& name) const { return fs::exists(at(name)); }
  std::string get(const std::string& name) const { return read_file(at(name)); }
  void put(const std::string& name, std::string_view contents) const {
    fs::create_directories(at(name).parent_path());
    FileWriter writer(at(name));
    writer.write(contents);
    writer.sync_and_close();
  }
  /// The last validation loss in the log of a run.
  double last_eval_loss(const std::string& run) const {
    const std::string log = get(run + "/trainer_log.jsonl"), key = "\"eval_loss\":";
    return std::stod(log.substr(log.rfind(key) + key.size()));
  }
  /// Cuts the last `num_bytes` off a file.
  void cut(const std::string& name, size_t num_bytes) const {
    fs::resize_file(at(name), fs::file_size(at(name)) - num_bytes);
  }

 private:
  /// Checkpoints wait for the disk; memory does not make them wait.
  static fs::path quick_folder() {
    const fs::path memory = "/dev/shm";
    return access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  }

  TemporaryFolder folder_{quick_folder()};
};

}  // namespace hearth
