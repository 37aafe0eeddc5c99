#pragma once

#include <vector>

#include "recipe/field.h"

/// Rows of the table of keys in fields.cpp that belong to one training task, or to distillation.
namespace hearth::recipe {

void add_segment_fields(std::vector<Field>& fields);
void add_detect_fields(std::vector<Field>& fields);
void add_dpo_fields(std::vector<Field>& fields);
void add_distill_fields(std::vector<Field>& fields);
void add_diffuse_fields(std::vector<Field>& fields);

}  // namespace hearth::recipe
