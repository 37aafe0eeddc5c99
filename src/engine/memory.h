#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/plan.h"
#include "exec/device/gpu.h"

namespace hearth::engine {

/// A plan that needs more memory than the GPU has free. planner/gpu_fit.h finds settings that fit.
class DoesNotFit : public UserError {
 public:
  DoesNotFit(std::shared_ptr<const Plan> plan, int64_t needed_bytes, int64_t usable_bytes,
             std::string device);

  std::shared_ptr<const Plan> plan;
  int64_t needed_bytes;
  int64_t usable_bytes;
  std::string device;  ///< name of the GPU
};

/// Memory of a plan: the weights and states, and the arena that all programs share. With a GPU, weights and
/// states are copied to the host or back when one needs what the other has changed.
class Memory {
 public:
  /// Allocates everything. DoesNotFit if the GPU has too little free memory.
  explicit Memory(const std::shared_ptr<const Plan>& plan);

  exec::Bindings places();
  /// Returns the up-to-date weights and states on the host, which the caller may change.
  std::byte* host_image();
  /// Uploads weights and states that the host may have changed. Before each run of a program.
  void sync_gpu();
  /// Reads the loss scale; 1 if there is none. A GPU has written it only after a wait.
  void read_loss_scale(float* to);
  /// Null: everything runs on the CPU.
  exec::Gpu* gpu() const { return gpu_.get(); }

 private:
  friend class ScratchMemory;
  void open_host();
  void open_gpu();

  std::shared_ptr<const Plan> plan_;
  exec::Region persistent_, arena_, host_arena_;
  std::unique_ptr<exec::Gpu> gpu_;
  std::unique_ptr<gpu::HostMemory> pinned_;  ///< instead of persistent_, if a GPU reads some of it
  std::byte* image_ = nullptr;               ///< bytes of the layout on the host
  enum class Newer : uint8_t { host, gpu };
  Newer newer_ = Newer::host;  ///< up-to-date copy of weights and states
};

/// A separate arena for a program that is not in the plan and uses its weights.
class ScratchMemory {
 public:
  ScratchMemory(Memory& memory, const exec::Program& program);
  const exec::Bindings& places() const { return places_; }

 private:
  exec::Region arena_, host_;
  std::optional<exec::ProgramMemory> on_gpu_;
  exec::Bindings places_;
};

}  // namespace hearth::engine
