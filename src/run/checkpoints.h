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

/// Saves and restores checkpoints of a run: on disk and, more frequently, in memory that outlives the worker
/// process. A checkpoint contains Engine::state() and the RunState.
class Checkpoints {
 public:
  /// `folder` must outlive this object.
  Checkpoints(Worker worker, const RunFolder& folder);

  /// Computes fingerprints of the input files (training data, base model), which checkpoints contain. load()
  /// rejects a checkpoint with other fingerprints unless `accepts_changed_inputs` is true. Call on the leader
  /// before load().
  void hash_inputs(bool accepts_changed_inputs);
  /// Restores the newest checkpoint of a resumed run and reports which one it is; nullopt if there is none.
  /// Throws a UserError if all checkpoints are damaged, or if the newest one does not match the recipe, the
  /// number of workers or the input files.
  std::optional<RunState> load();
  /// Restores the newest checkpoint without reporting it; nullopt if there is none.
  std::optional<RunState> restore_newest();
  /// Returns the newest checkpoint on disk; nullopt if there is none.
  std::optional<io::FoundCheckpoint> newest() const;

  // The functions from open() to discard_after() are called on the leader only, open() first.

  void open();
  /// Copies the state and writes it to disk in the background. Flushes the sink first, because a resumed run
  /// truncates its log to the step of the checkpoint.
  void save(RunState& state, RunSink& sink);
  /// Waits until all saved checkpoints are on disk.
  void flush() { writer_->flush(); }
  /// Throws the error of the last write if it failed; does not wait for a write in progress.
  void check() { writer_->check(); }
  /// Deletes the checkpoints of later steps than `step`, if a checkpoint of `step` or earlier exists.
  void discard_after(int64_t step);

  /// Allocates memory for checkpoints. Call on the leader. Returns a warning if there is not enough memory,
  /// or "".
  std::string allocate_memory();
  /// True if a checkpoint in memory is due; always false on other workers than the leader.
  bool is_memory_due() const;
  /// Saves a checkpoint to memory. Call on every worker.
  void save_to_memory(RunState& state);

 private:
  struct Restored {
    RunState state;
    std::string text;  ///< description of the restored checkpoint, for messages
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
  std::string run_id_;  ///< key by which checkpoints of this run are found in memory
  std::unique_ptr<io::CheckpointWriter> writer_;
  std::vector<InputState> inputs_;
  bool accepts_changed_inputs_ = false;
  double memory_due_at_ = 0;  ///< time of the next checkpoint in memory, as process_seconds(); 0: never
};

}  // namespace hearth::run
