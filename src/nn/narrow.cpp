#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "nn/module.h"
#include "passes/channels.h"

namespace hearth::nn {
namespace {

/// Splits `factors` into consecutive runs so that the product of run i is products[i]. Returns the end index
/// of each run.
std::vector<size_t> runs_of(std::span<const int64_t> factors, std::span<const int64_t> products) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int64_t product : products) {
    int64_t made = factors[at++];
    while (made < product) made *= factors[at++];
    HEARTH_CHECK(made == product);
    ends.push_back(at);
  }
  return ends;
}

/// Returns the file layout of a weight whose shape changes from `before` to `after`. If an axis consists of
/// several axes of memory_view, its channels are the last of these.
FileLayout narrowed(const FileLayout& layout, const Shape& before, const Shape& after) {
  std::vector<int64_t> view(layout.memory_view.begin(), layout.memory_view.end());
  const std::vector<size_t> ends = runs_of(view, before.axes());
  for (int axis = 0; axis < before.rank(); ++axis) {
    int64_t& length = view[ends[static_cast<size_t>(axis)] - 1];
    const int64_t others = before[axis] / length;
    HEARTH_CHECK(after[axis] % others == 0);
    length = after[axis] / others;
  }
  std::vector<int64_t> old_file, new_file;
  for (const int axis : layout.file_axes) {
    old_file.push_back(layout.memory_view[axis]);
    new_file.push_back(view[static_cast<size_t>(axis)]);
  }
  std::vector<int64_t> shape;
  size_t begin = 0;
  for (const size_t end : runs_of(old_file, layout.file_shape.axes())) {
    shape.push_back(std::accumulate(new_file.begin() + static_cast<int64_t>(begin),
                                    new_file.begin() + static_cast<int64_t>(end), int64_t{1},
                                    std::multiplies<>()));
    begin = end;
  }
  return {.memory_view = Shape(view), .file_axes = layout.file_axes, .file_shape = Shape(shape)};
}

/// Throws a UserError: the model has no layer of this name whose channels can be removed.
[[noreturn]] void refuse_layer(const std::string& layer, const passes::Channels& channels) {
  std::vector<std::string> names;
  for (const passes::ChannelGroup& group : channels.groups)
    names.insert(names.end(), group.layers.begin(), group.layers.end());
  if (std::ranges::find(channels.layers, layer, &passes::ChannelLayer::name) != channels.layers.end())
    user_error(
        "model.widths: the channels of '{}' cannot be removed, because they are outputs of the model or "
        "depend on several layers; remove the entry",
        layer);
  user_error("model.widths: the model has no layer '{}'{}", layer, did_you_mean(layer, names));
}

}  // namespace

void Builder::narrow(std::span<const Width> widths) {
  if (widths.empty()) return;
  const passes::Channels channels = passes::find_channels(graph_);
  std::vector<char> keep(static_cast<size_t>(channels.num_sets), 1);
  for (const Width& width : widths) {
    const passes::ChannelGroup* group = channels.find(width.layer);
    if (group == nullptr && mode_ == Mode::eval) continue;
    if (group == nullptr) refuse_layer(width.layer, channels);
    const int64_t num_sets = std::ssize(group->sets);
    if (width.channels < 1 || width.channels > num_sets)
      user_error("model.widths: {}={}, but the layer has {} channels; use 1 to {}", width.layer,
                 width.channels, num_sets, num_sets);
    for (int64_t i = width.channels; i < num_sets; ++i)
      keep[ir::index(group->sets[static_cast<size_t>(i)])] = 0;
  }
  std::vector<Shape> before;
  for (const Tensor& tensor : tensors_) before.push_back(graph_.type(tensor.value).shape);
  passes::remove_channels(graph_, channels, keep);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Shape& after = graph_.type(tensors_[i].value).shape;
    if (after != before[i]) tensors_[i].layout = narrowed(tensors_[i].layout, before[i], after);
  }
}

}  // namespace hearth::nn
