#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/plan.h"
#include "exec/device/gpu.h"

namespace hearth::engine {

/// Error for a plan that needs more memory than the GPU has free. planner/gpu_fit.h finds settings that fit.
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
/// states have a copy on the host, which is synchronized when host or GPU needs values that the other one has
/// changed.
class Memory {
 public:
  /// Allocates all memory of the plan. Throws DoesNotFit if the GPU has too little free memory.
  explicit Memory(const std::shared_ptr<const Plan>& plan);

  exec::Bindings places();
  /// Returns the up-to-date weights and states on the host, which the caller may change.
  std::byte* host_image();
  /// Uploads weights and states to the GPU if the host may have changed them. Call before each run of a
  /// program.
  void sync_gpu();
  /// Reads the loss scale to `to`; 1 if there is none. With a GPU, the value is valid only after the next
  /// Gpu::wait().
  void read_loss_scale(float* to);
  /// Returns the GPU; null if everything runs on the CPU.
  exec::Gpu* gpu() const { return gpu_.get(); }

 private:
  friend class ScratchMemory;
  void open_host();
  void open_gpu();

  std::shared_ptr<const Plan> plan_;
  exec::Region persistent_, arena_, host_arena_;
  std::unique_ptr<exec::Gpu> gpu_;
  /// Used instead of persistent_ if the GPU accesses some weights or states in host memory.
  std::unique_ptr<gpu::HostMemory> pinned_;
  std::byte* image_ = nullptr;  ///< weights and states on the host, in the plan's layout
  enum class Newer : uint8_t { host, gpu };
  Newer newer_ = Newer::host;  ///< location of the newest values of weights and states
};

/// A separate arena for a program that is not part of the plan but uses the plan's weights.
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
