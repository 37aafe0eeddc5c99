#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "run/run_folder.h"
#include "run/run_sink.h"
#include "run/state.h"
#include "run/worker.h"

namespace hearth::run {

/// Checkpoints of a run, on disk and, more often, in memory that outlives the process. Both hold the engine's
/// state and the RunState. The newest of both is restored, if it fits the recipe and the files it depends on.
class Checkpoints {
 public:
  /// `folder` outlives this.
  Checkpoints(Worker worker, const RunFolder& folder);

  /// The leader's, before load(): takes fingerprints of the files that checkpoints depend on.
  void take_inputs(bool accepts_changed_inputs);
  /// Restores the newest checkpoint for a run that resumes, and reports which one it is; none if there are no
  /// checkpoints. UserError if there are only damaged ones, or the newest does not fit the run.
  std::optional<RunState> load();
  /// Restores the newest checkpoint silently.
  std::optional<RunState> restore_newest();
  /// Returns the newest checkpoint on disk.
  std::optional<io::FoundCheckpoint> newest() const;

  // The leader's, after open():

  void open();
  /// Copies the state, to be written while training continues; flushes the sink first, since a resumed run
  /// cuts its log at the checkpoint.
  void save(RunState& state, RunSink& sink);
  /// Waits until everything saved is on the disk.
  void flush() { writer_->flush(); }
  /// Throws the error of the last write, if it failed; does not wait.
  void check() { writer_->check(); }
  /// Deletes the checkpoints after `step`, if one up to there is left.
  void discard_after(int64_t step);

  /// The leader's: allocates memory for checkpoints. Returns a warning if there is not enough; else empty.
  std::string allocate_memory();
  /// True on the leader if it is time for a checkpoint in memory.
  bool is_memory_due() const;
  /// Saves to memory; called by every worker.
  void save_to_memory(RunState& state);

 private:
  struct Restored {
    RunState state;
    std::string text;  ///< for people: which checkpoint it is
  };
  std::optional<Restored> restore(std::vector<std::string>* refused);
  RunState restore(const std::string& state_text, std::span<const std::byte> memory,
                   const std::string& where);
  void check_number_of_workers(const RunState& state, const std::string& where) const;
  void check_same_run(const RunState& state, const std::string& where) const;
  void check_inputs(const RunState& state, const std::string& where) const;
  StateText write(RunState& state) const;

  Worker worker_;
  const RunFolder& folder_;
  std::string run_id_;  ///< tells checkpoints in memory of different runs apart
  std::unique_ptr<io::CheckpointWriter> writer_;
  std::vector<InputState> inputs_;
  bool accepts_changed_inputs_ = false;
  double memory_due_at_ = 0;  ///< seconds of this process; 0: never
};

}  // namespace hearth::run
