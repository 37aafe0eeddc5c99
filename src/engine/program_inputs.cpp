#include "engine/program_inputs.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::engine {

MicroBatch InputOrder::sorted(const MicroBatch& batch) {
  if (matched_[0] == nullptr || !std::ranges::equal(matched_, batch.arrays, {}, {}, &data::NamedArray::name))
    match(batch);
  MicroBatch made = batch;
  for (size_t i = 0; i < names_.size(); ++i) made.arrays[i] = batch.arrays[position_[i]];
  return made;
}

void InputOrder::match(const MicroBatch& batch) {
  for (const data::NamedArray& array : batch.arrays) {
    if (array.name != nullptr && std::ranges::find(names_, array.name) == names_.end())
      internal_error("the objective has no input '{}'", array.name);
  }
  for (size_t i = 0; i < names_.size(); ++i) position_[i] = batch.position(names_[i]);
  std::ranges::transform(batch.arrays, matched_.begin(), &data::NamedArray::name);
}

ProgramInputs::ProgramInputs(exec::Executor& executor, const std::vector<std::string>& names,
                             const std::string& prefix)
    : executor_(executor), counter_input_(executor.input(prefix + "counter")) {
  for (const std::string& name : names) arrays_.push_back(executor.input(prefix + name));
}

void ProgramInputs::bind(const MicroBatch& batch) const {
  for (size_t i = 0; i < arrays_.size(); ++i)
    if (arrays_[i] != ir::kNone) executor_.bind_input(arrays_[i], batch.arrays[i].data);
}

void ProgramInputs::bind(const MicroBatch& batch, int64_t step, int64_t index) {
  bind(batch);
  counter_[0] = step;
  counter_[1] = index;
  if (counter_input_ != ir::kNone) executor_.bind_input(counter_input_, counter_.data());
}

}  // namespace hearth::engine
