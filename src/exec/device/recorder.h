#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "backend/gpu/autotune.h"
#include "base/choices.h"

namespace hearth::exec {

/// Recording mode and state shared by an engine's programs. A runtime may hang while it records, crash the
/// process, or replay other work. Results are therefore stored by GPU, driver, build and program: a process
/// does not record a program that an earlier process failed to record.
class Recorder {
 public:
  /// Results are stored in `file`; empty: they are not. They count for RecordMode::automatic only.
  explicit Recorder(RecordMode when, const gpu::DeviceInfo& gpu = {}, const fs::path& file = {});
  /// Marks programs between start() and finish() as abandoned, not failed: later processes record them again.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  RecordMode when() const { return when_; }
  /// Reason why recording is off; empty if it is on.
  const std::string& fault() const { return fault_; }

  /// Call before a program is recorded. Returns false and turns recording off if an earlier process failed to
  /// record it.
  bool start(const std::string& program);
  /// Call once the recording was replayed and compared.
  void finish(const std::string& program);
  /// Turns recording off. If `program` is given, later processes do not record that program either.
  void turn_off(std::string fault, const std::string& program = "");

 private:
  std::string key(const std::string& program) const { return prefix_ + program; }

  RecordMode when_;
  std::string fault_;
  std::string prefix_;  ///< part of the keys that names GPU, driver and build
  fs::path path_;
  gpu::WinnerFile file_;
  std::set<std::string> started_;  ///< programs between start() and finish()
};

}  // namespace hearth::exec
