#include "infer/adapter_switch.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "hub/adapter.h"
#include "hub/weights.h"

namespace hearth::infer {
namespace {

/// Calls copy(memory) with the memory of each adapter weight in the engine.
void for_each_weight(engine::Engine& engine, FunctionRef<void(std::span<std::byte>)> copy) {
  for (const exec::PersistentBuffer& buffer : engine.plan().layout->buffers()) {
    if (buffer.role == ir::Role::parameter)
      copy({engine.data(buffer), static_cast<size_t>(buffer.type.num_bytes())});
  }
}

std::vector<std::byte> weights_of(engine::Engine& engine) {
  std::vector<std::byte> weights;
  for_each_weight(engine, [&](std::span<std::byte> memory) {
    weights.insert(weights.end(), memory.begin(), memory.end());
  });
  return weights;
}

/// Throws a UserError if an adapter has another scale or rank in a module than the adapter of the engine,
/// with which the graph was built.
void check_scales(const engine::Engine& engine, const NamedAdapter& adapter) {
  const nn::Adapter other =
      hub::builder_adapter({.path = adapter.path.string()}, hub::read_adapter_config(adapter.path));
  constexpr std::string_view kEnd = ".lora_A.weight";
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    if (!tensor.name.ends_with(kEnd)) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - kEnd.size());
    const auto wanted = engine.plan().options.adapter.change_of(module), found = other.change_of(module);
    if (found.rank == wanted.rank && found.scale == wanted.scale) continue;
    user_error(
        "{}: the adapter has rank {} and scale {} in '{}', but another adapter has {} and {}; adapters that "
        "are loaded together need the same rank, alpha and target modules",
        adapter.path.string(), found.rank, found.scale, module, wanted.rank, wanted.scale);
  }
}

}  // namespace

AdapterSwitch::AdapterSwitch(engine::Engine& engine, std::span<const NamedAdapter> adapters) {
  weights_.push_back(weights_of(engine));
  for (const NamedAdapter& adapter : adapters) {
    if (std::ranges::find(names_, adapter.name) != names_.end() || adapter.name.empty())
      user_error("two adapters have the name '{}'; give them different names", adapter.name);
    check_scales(engine, adapter);
    hub::load_weights(engine, hub::adapter_weights(adapter.path));
    names_.push_back(adapter.name);
    weights_.push_back(weights_of(engine));
  }
  current_ = static_cast<int32_t>(adapters.size());
  use(engine, 0);
}

int32_t AdapterSwitch::index_of(std::string_view name) const {
  if (name.empty()) return 0;
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end())
    user_error("there is no adapter '{}'{}; the adapters are: {}", name, did_you_mean(name, names_),
               fmt::join(names_, ", "));
  return static_cast<int32_t>(found - names_.begin()) + 1;
}

void AdapterSwitch::use(engine::Engine& engine, int32_t index) {
  if (index == current_) return;
  auto from = weights_[static_cast<size_t>(index)].begin();
  for_each_weight(engine, [&](std::span<std::byte> memory) {
    std::copy_n(from, memory.size(), memory.begin());
    from += std::ssize(memory);
  });
  current_ = index;
}

}  // namespace hearth::infer
