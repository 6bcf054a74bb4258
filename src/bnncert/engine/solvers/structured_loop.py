"""The matrices of a structured program, compiled by numba; `compiled_iteration` calls them.

A *shape* is the tuple of all arrays that do not change during a solve: the general vectors of Z,
the number of rows before the unit vectors, the literals of the pair vectors e_0 + sign e_i, the two
vectors of each product, the sign of each product in T, the first entry of the diagonal, the forms
with their places, and the tables (see `flat_tables`): where the points of each begin, the number
of its links, their places among the unknowns, and the features and values of all points.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def _measure(shape, matrix, image, values):
    """Set the entries <B_k, matrix>, given the products of the general vectors with the matrix."""
    rows, first, unit, sign, left, right = shape[:6]
    size = matrix.shape[0]
    forms, form_place = shape[8], shape[9]
    for k in range(left.size):
        a, b = left[k], right[k]
        if a >= first + size:
            s, t = sign[a - first - size], sign[b - first - size]
            i, j = unit[a - first - size], unit[b - first - size]
            total = matrix[0, 0] + t * matrix[0, j] + s * matrix[i, 0] + s * t * matrix[i, j]
        elif a >= first and b >= first:
            total = matrix[a - first, b - first]
        elif a >= first:
            total = image[b, a - first]
        elif b >= first:
            total = image[a, b - first]
        else:
            total = 0.0
            if a >= 0:
                for i in range(size):
                    total += image[a, i] * rows[b, i]
        values[k] = total
    for c in range(form_place.size):
        total = 0.0
        for i in range(size):
            for j in range(size):
                total += forms[c, i, j] * matrix[i, j]
        values[form_place[c]] = total


@numba.njit(cache=True, nogil=True)
def equations(shape, matrix, masses):
    """Return b - A(M, p) for the unknowns, and for theta_0 of every table."""
    rows, signs, diagonal = shape[0], shape[6], shape[7]
    start, links, place, features = shape[10:14]
    values = np.empty(signs.size)
    _measure(shape, matrix, np.dot(rows, matrix), values)
    for k in range(values.size):
        values[k] *= signs[k]
    for i in range(matrix.shape[0]):
        values[diagonal + i] += 1.0
    local = np.empty(links.size)
    for j in range(links.size):
        total = 0.0
        for k in range(start[j], start[j + 1]):
            total += masses[k]
        local[j] = 1.0 - total
        for f in range(links[j]):
            total = 0.0
            for k in range(start[j], start[j + 1]):
                total += features[f, k] * masses[k]
            values[place[j, f]] -= total
    return values, local


@numba.njit(cache=True, nogil=True)
def combine(shape, unknowns):
    """Return the part of T that unknowns give."""
    rows, first, unit, sign, left, right, signs = shape[:7]
    forms, form_place = shape[8], shape[9]
    size = rows.shape[1]
    total = np.zeros((size, size))
    square = np.zeros(rows.shape[0])
    for k in range(left.size):
        a, b = left[k], right[k]
        w = signs[k] * unknowns[k]
        if a >= first + size:
            s, t = sign[a - first - size], sign[b - first - size]
            i, j = unit[a - first - size], unit[b - first - size]
            total[0, 0] += w
            total[0, j] += t * w
            total[i, 0] += s * w
            total[i, j] += s * t * w
        elif a >= first and b >= first:
            total[a - first, b - first] += w
        elif a >= first:
            for i in range(size):
                total[a - first, i] += w * rows[b, i]
        elif b >= first:
            for i in range(size):
                total[b - first, i] += w * rows[a, i]
        elif a >= 0:
            square[a] += w
    for c in range(form_place.size):
        w = unknowns[form_place[c]]
        for i in range(size):
            for j in range(size):
                total[i, j] += w * forms[c, i, j]
    scaled = np.empty(rows.shape)
    for j in range(rows.shape[0]):
        for i in range(size):
            scaled[j, i] = square[j] * rows[j, i]
    total += np.dot(scaled.T, rows)
    return (total + total.T) / 2


@numba.njit(cache=True, nogil=True)
def slacks(shape, base, constants, unknowns):
    """Return base - sum_f theta_f feature_f for every point, base being the values or 0."""
    start, links, place, features = shape[10:14]
    found = base.copy()
    for j in range(links.size):
        for k in range(start[j], start[j + 1]):
            found[k] -= constants[j]
        for f in range(links[j]):
            theta = unknowns[place[j, f]]
            for k in range(start[j], start[j + 1]):
                found[k] -= theta * features[f, k]
    return found


@numba.njit(cache=True, nogil=True)
def _gram(shape, matrix, gram):
    """Fill Z matrix Z'."""
    rows, first, unit, sign = shape[:4]
    size, count = matrix.shape[0], unit.size
    image = np.dot(rows, matrix)
    square = np.dot(image, rows.T)
    for a in range(first):
        for b in range(first):
            gram[a, b] = square[a, b]
        for i in range(size):
            gram[a, first + i] = image[a, i]
            gram[first + i, a] = image[a, i]
    for i in range(size):
        for j in range(size):
            gram[first + i, first + j] = matrix[i, j]
    last = first + size
    for e in range(count):
        for a in range(last):
            value = gram[first, a] + sign[e] * gram[first + unit[e], a]
            gram[last + e, a] = value
            gram[a, last + e] = value
    for e in range(count):
        for d in range(count):
            value = gram[last + e, first] + sign[d] * gram[last + e, first + unit[d]]
            gram[last + e, last + d] = value


@numba.njit(cache=True, nogil=True)
def newton(shape, moments, inverse, masses, gaps, space):
    """Fill the lower part of the Newton matrix, scaled to a diagonal of 1.

    Return the scale, and what eliminating theta_0 of every table needs.
    """
    first, unit, left, right, signs = shape[1], shape[2], shape[4], shape[5], shape[6]
    forms, form_place = shape[8], shape[9]
    start, links, place, features = shape[10:14]
    count = first + moments.shape[0] + unit.size
    of_moments, of_inverse = np.empty((count, count)), np.empty((count, count))
    _gram(shape, moments, of_moments)
    _gram(shape, inverse, of_inverse)
    for k in range(left.size):
        if left[k] < 0:
            continue
        ma, mb = of_moments[left[k]], of_moments[right[k]]
        ta, tb = of_inverse[left[k]], of_inverse[right[k]]
        quarter = 0.25 * signs[k]
        if left[k] == right[k]:
            for q in range(k + 1):
                c, d = left[q], right[q]
                value = ma[c] * ta[d] + ma[d] * ta[c]
                space[k, q] = 2 * quarter * signs[q] * value
        else:
            for q in range(k + 1):
                c, d = left[q], right[q]
                value = mb[c] * ta[d] + mb[d] * ta[c] + ma[c] * tb[d] + ma[d] * tb[c]
                space[k, q] = quarter * signs[q] * value
    row = np.empty(left.size)
    for c in range(form_place.size):
        product = np.dot(np.dot(moments, forms[c]), inverse)
        product = (product + product.T) / 2
        _measure(shape, product, np.dot(shape[0], product), row)
        where = form_place[c]
        for q in range(where + 1):
            space[where, q] = signs[q] * row[q]
        for q in range(where, left.size):
            space[q, where] = signs[q] * row[q]
    head = np.empty(links.size)
    cross = np.zeros(place.shape)
    weight = masses / gaps
    for j in range(links.size):
        low, high = start[j], start[j + 1]
        total = 0.0
        for k in range(low, high):
            total += weight[k]
        head[j] = total
        for f in range(links[j]):
            total = 0.0
            for k in range(low, high):
                total += weight[k] * features[f, k]
            cross[j, f] = total
        for f in range(links[j]):
            for e in range(f + 1):
                total = 0.0
                for k in range(low, high):
                    total += weight[k] * features[f, k] * features[e, k]
                space[place[j, f], place[j, e]] += total - cross[j, f] * cross[j, e] / head[j]
    scale = np.empty(left.size)
    for k in range(left.size):
        scale[k] = 1.0 / np.sqrt(max(space[k, k], 1e-300))
    for k in range(left.size):
        for q in range(k + 1):
            space[k, q] *= scale[k] * scale[q]
    return scale, head, cross


@numba.njit(cache=True, nogil=True)
def without_constants(shape, head, cross, right, local):
    """Eliminate theta_0 of every table from a right-hand side."""
    links, place = shape[11], shape[12]
    for j in range(links.size):
        for f in range(links[j]):
            right[place[j, f]] -= cross[j, f] * local[j] / head[j]


@numba.njit(cache=True, nogil=True)
def constants(shape, head, cross, step, local):
    """Return the step of theta_0 of every table."""
    links, place = shape[11], shape[12]
    found = np.empty(links.size)
    for j in range(links.size):
        total = local[j]
        for f in range(links[j]):
            total -= cross[j, f] * step[place[j, f]]
        found[j] = total / head[j]
    return found
