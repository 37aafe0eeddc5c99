#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

PyramidLevels pyramid_levels(Extent size) {
  PyramidLevels made;
  int64_t rows = size.height / 8, columns = size.width / 8, first = 0;
  for (PyramidLevel& level : made) {
    level = {.rows = rows,
             .columns = columns,
             .stride_y = size.height / rows,
             .stride_x = size.width / columns,
             .first = first};
    first += rows * columns;
    rows = (rows + 1) / 2;
    columns = (columns + 1) / 2;
  }
  return made;
}

int64_t num_cells(const PyramidLevels& levels) {
  return levels.back().first + levels.back().rows * levels.back().columns;
}

}  // namespace hearth::tasks
