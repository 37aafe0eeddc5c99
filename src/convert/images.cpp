#include "convert/images.h"

#include <algorithm>

namespace hearth::convert {

Result set_flux_targets(Importer& importer, std::string_view note) {
  return importer.set(
      "adapter.targets",
      "[to_q, to_k, to_v, to_out.0, add_q_proj, add_k_proj, add_v_proj, to_add_out, ff.net.0.proj, "
      "ff.net.2, ff_context.net.0.proj, ff_context.net.2, norm1.linear, norm1_context.linear, "
      "norm.linear, proj_mlp, proj_out]",
      note);
}

Result convert_resolution(Importer& importer, const Entry& entry) {
  const std::vector<std::string> sides =
      entry.value.is_number() ? std::vector{text_of(entry.value)} : texts_of(entry.value);
  if (sides.empty()) return importer.refuse("the value is not a size in pixels", "data.image_size");
  const std::string size =
      *std::ranges::max_element(sides, {}, [](const std::string& side) { return number_of(Value(side), 0); });
  const bool is_square = std::ranges::count(sides, sides.front()) == std::ssize(sides);
  if (is_square) return importer.set("data.image_size", size);
  return importer.refuse("Hearth trains at one resolution, with buckets of its area", "data.image_size",
                         size);
}

}  // namespace hearth::convert
