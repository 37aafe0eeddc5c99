#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/plan.h"
#include "exec/device/gpu.h"

namespace hearth::engine {

/// A plan that needs more of a GPU than it has free. planner/gpu_fit.h says what would fit.
class DoesNotFit : public UserError {
 public:
  DoesNotFit(std::shared_ptr<const Plan> plan, int64_t needed_bytes, int64_t usable_bytes,
             std::string device);

  std::shared_ptr<const Plan> plan;
  int64_t needed_bytes;
  int64_t usable_bytes;
  std::string device;  ///< its name
};

/// Where the weights and states of the programs lie, and the arena that these share. On a GPU, weights
/// and states are copied between it and the host when one asks for what the other has changed.
class Memory {
 public:
  /// Allocates everything. DoesNotFit where a GPU has too little.
  explicit Memory(const std::shared_ptr<const Plan>& plan);

  exec::Places places();
  /// The host's weights and states, which the caller may change.
  std::byte* on_host();
  /// Before a program runs, which may change them.
  void to_gpu();
  /// The loss scale, 1 where there is none; from a GPU, once it is waited for.
  void read_loss_scale(float* to);
  /// Null: everything runs on the processor.
  exec::Gpu* gpu() const { return gpu_.get(); }

 private:
  friend class Room;
  void open_host();
  void open_gpu();

  std::shared_ptr<const Plan> plan_;
  exec::Region persistent_, arena_, host_arena_;
  std::unique_ptr<exec::Gpu> gpu_;
  std::unique_ptr<gpu::HostMemory> pinned_;  ///< in place of persistent_ where some of it stays on the host
  std::byte* image_ = nullptr;               ///< the bytes of the layout on the host
  enum class Newer : uint8_t { host, gpu };
  Newer newer_ = Newer::host;  ///< whose weights and state count
};

/// The arena of a program that runs beside the others, with the same weights.
class Room {
 public:
  Room(Memory& memory, const exec::Program& program);
  const exec::Places& places() const { return places_; }

 private:
  exec::Region arena_, host_;
  std::optional<exec::GpuRoom> on_gpu_;
  exec::Places places_;
};

}  // namespace hearth::engine
